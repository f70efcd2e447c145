"""The examples for Node and the browser, run as their READMEs say: the same tokens and text as the library."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layouts.single_demo import BEAMS, EXAMPLES, export_demo, judged
from tests.serve.browser import Browser, browser

NODE, WEB = EXAMPLES / "onnxruntime-node", EXAMPLES / "onnxruntime-web"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules" / "onnxruntime-node").is_dir(),
    reason="needs node, and `npm install` in examples/onnxruntime-node",
)
needs_browser = pytest.mark.skipif(
    shutil.which("chromedriver") is None or not (WEB / "node_modules" / "onnxruntime-web").is_dir(),
    reason="needs Debian's chromium-driver, and `npm install` in examples/onnxruntime-web",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("javascript")
    return {beams: export_demo(folder, beams=beams) for beams in BEAMS}


def run_node(folder: Path, lines: list[str], *flags: str) -> list[str]:
    done = subprocess.run(
        ["node", "main.mjs", str(folder), *flags],
        cwd=NODE, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_node
@pytest.mark.node
@pytest.mark.parametrize("beams", BEAMS)
def test_node_gives_the_library_tokens(demo: dict[int, Path], beams: int) -> None:
    found = run_node(demo[beams], [" ".join(map(str, one.ids)) for one in judged()], "--ids")
    assert found == [" ".join(map(str, one.tokens[beams])) for one in judged()]


@needs_node
@pytest.mark.node
def test_node_gives_the_library_text(demo: dict[int, Path]) -> None:
    found = run_node(demo[1], [one.text for one in judged()])
    assert found == [one.translation[1] for one in judged()]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture(scope="module")
def address(demo: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example as a web server gives it out, with the models beside the page."""
    folder = tmp_path_factory.mktemp("web") / "site"
    folder.mkdir()
    for path in WEB.iterdir():
        (folder / path.name).symlink_to(path)
    for beams, model in demo.items():
        (folder / f"model-{beams}").symlink_to(model)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=os.fspath(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


_RUN = """
const [batches, done] = arguments;
window.answers = null;
(async () => {
  const found = [];
  for (const batch of batches) found.push(...(await window.onnxmt.run(batch)).map((one) => one.ids));
  window.answers = JSON.stringify(found);
})().catch((error) => { window.answers = JSON.stringify(String(error)); });
"""


@needs_browser
@pytest.mark.browser
@pytest.mark.parametrize("beams", BEAMS)
def test_a_browser_gives_the_library_tokens(address: str, window: Browser, beams: int) -> None:
    window.open(f"{address}/?model=model-{beams}")
    window.wait(lambda: window.text("#state") != "loading the model…", seconds=60)
    assert window.text("#state") == "ready"
    order = sorted(range(len(judged())), key=lambda index: len(judged()[index].ids))
    batches = [order[first : first + 10] for first in range(0, len(order), 10)]
    window.run(_RUN, [[judged()[index].ids for index in batch] for batch in batches])
    window.wait(lambda: window.run("return window.answers") is not None, seconds=200)
    found = dict(zip(order, json.loads(window.run("return window.answers")), strict=True))
    assert [tuple(found[index]) for index in range(len(order))] == [one.tokens[beams] for one in judged()]


@needs_browser
@pytest.mark.browser
def test_a_person_types_a_sentence(address: str, window: Browser) -> None:
    window.open(f"{address}/?model=model-4")
    window.wait(lambda: window.text("#state") == "ready", seconds=60)
    ids = window.run(
        "return arguments[0].map((text) => window.onnxmt.tokenizer.encode(text))", [o.text for o in judged()]
    )
    assert ids == [one.ids for one in judged()]
    window.click("button")
    window.wait(lambda: window.text("#translation") != "")
    assert window.text("#translation") == "图书馆九点开门。"
