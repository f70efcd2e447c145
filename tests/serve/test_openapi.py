from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.translator import Translator
from onnxmt.serve import Limits, ServeOptions, create_app
from onnxmt.serve.schemas import ErrorAnswer, ModelsAnswer, TranslateAnswer
from tests.serve.live import listening


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_address_in_it_exists_and_its_examples_work(client: TestClient, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            found = client.request(method, path, json=content and content["example"])
            assert found.status_code == 200, (path, found.text)


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert names <= set(document["components"]["schemas"])
    assert {"TranslateRequest", "TranslationAnswer", "Timing"} <= names


def test_answers_are_as_it_says(client: TestClient) -> None:
    asked = {"text": ["Yes.", "x"], "alternatives": 1}
    TranslateAnswer.model_validate(client.post("/v1/translate", json=asked).json(), extra="forbid")
    ModelsAnswer.model_validate(client.get("/v1/models").json(), extra="forbid")
    ErrorAnswer.model_validate(client.post("/v1/translate", json={}).json())


def test_it_says_this_servers_limits(translator: Translator) -> None:
    options = ServeOptions(limits=Limits(items=3, beams=2, alternatives=1), dialects=frozenset({"kiss"}))
    document = TestClient(create_app(translator, options=options)).get("/openapi.json").json()
    fields = document["components"]["schemas"]["TranslateRequest"]["properties"]
    assert fields["text"]["anyOf"][1]["maxItems"] == 3
    assert [one.get("maximum") for one in fields["beams"]["anyOf"]] == [2, None]
    assert fields["alternatives"]["maximum"] == 1
    assert "/kiss" in document["paths"]
    assert "/v2/translate" not in document["paths"]


def test_the_commands_of_the_docs_page_work_as_printed(client: TestClient) -> None:
    page = client.get("/docs").text.replace("&#x27;", "'").replace("&quot;", '"')
    commands = re.findall(r"<pre>(curl .*?)</pre>", page, re.DOTALL)
    assert len(commands) == len(re.findall("<article>", page))
    for command in commands:
        words = shlex.split(command)
        path = words[2].removeprefix("localhost:8000")
        if "-d" in words:
            headers = dict([words[words.index("-H") + 1].split(": ")])
            found = client.post(path, content=words[words.index("-d") + 1], headers=headers)
        else:
            found = client.get(path)
        assert found.status_code == 200, command


SCHEMATHESIS = shutil.which(
    "schemathesis", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


@pytest.mark.slow
@pytest.mark.skipif(SCHEMATHESIS is None, reason="schemathesis is not installed (dependency group `contract`)")
def test_schemathesis_finds_nothing(translator: Translator, tmp_path: Path) -> None:
    with listening(create_app(translator)) as address:
        config = Path(__file__).with_name("schemathesis.toml")
        command = [str(SCHEMATHESIS), "--config-file", str(config), "run", f"{address}/openapi.json"]
        done = subprocess.run(
            [*command, "--max-examples", "40"], capture_output=True, text=True, check=False, cwd=tmp_path
        )
    assert done.returncode == 0, done.stdout[-6000:]
