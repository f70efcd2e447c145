"""A real browser, driven by the W3C WebDriver protocol: Debian's chromium and chromium-driver, nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ENTER, TAB, CONTROL = "\ue007", "\ue004", "\ue009"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._base = f"{driver}/session/{session}"

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _ask(method, f"{self._base}/{path}", body)

    def open(self, address: str) -> None:
        self.ask("POST", "url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def shown(self, selector: str) -> bool:
        return bool(self.run("return document.querySelector(arguments[0]).checkVisibility()", selector))

    def type(self, selector: str, text: str) -> None:
        found = self.ask("POST", "element", {"using": "css selector", "value": selector})
        self.ask("POST", f"element/{found[_ELEMENT]}/value", {"text": text})

    def click(self, selector: str) -> None:
        found = self.ask("POST", "element", {"using": "css selector", "value": selector})
        self.ask("POST", f"element/{found[_ELEMENT]}/click", {})

    def press(self, keys: str, *, together: bool = False) -> None:
        """Press keys wherever the focus is, one after another or all at once."""
        downs = [{"type": "keyDown", "value": key} for key in keys]
        ups = [{"type": "keyUp", "value": key} for key in keys]
        actions = [*downs, *ups] if together else [one for pair in zip(downs, ups, strict=True) for one in pair]
        self.ask("POST", "actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def size(self, width: int, height: int) -> None:
        self.ask("POST", "window/rect", {"width": width, "height": height})

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("GET", "screenshot")))

    def wait(self, condition: Callable[[], object], *, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "the page did not get there"
            time.sleep(0.02)

    def log(self) -> list[str]:
        """What the page complained of."""
        found = self.ask("POST", "se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] in ("SEVERE", "WARNING")]


@contextlib.contextmanager
def browser(*, tongue: str = "en-US") -> Iterator[Browser]:
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert driver.stdout is not None
        line = next(line for line in driver.stdout if "started successfully on port" in line)
        address = f"http://127.0.0.1:{line.rstrip().rstrip('.').rpartition(' ')[2]}"
        flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", f"--lang={tongue}"]
        chrome = {"args": flags, "prefs": {"intl.accept_languages": tongue}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _ask("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        window = Browser(address, session)
        yield window
        window.ask("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(20)


def _ask(method: str, address: str, body: dict[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address.rstrip("/"), data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(json.loads(error.read())["value"]["message"]) from None
