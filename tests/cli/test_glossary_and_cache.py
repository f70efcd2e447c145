from __future__ import annotations

import json

import pytest

from onnxmt.runtime.decoder import Seq2SeqModel
from tests.cli.harness import invoke, run


@pytest.fixture
def terms(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("friend\tGitHub\nbook\t图书\tforms\n", encoding="utf-8")
    return path


def test_terms_are_applied_and_told(terms):
    (line,) = invoke("translate", "--glossary", terms, "--json", "My friend likes books.").objects
    assert line["text"] == "我的GitHub喜欢图书。"
    assert line["glossary"] == [
        {"source": "friend", "target": "GitHub", "applied": True},
        {"source": "books", "target": "图书", "applied": True},
    ]
    assert line["warnings"] == []


def test_a_wrong_glossary_is_one_line(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("friend GitHub\n")
    assert invoke("translate", "--glossary", path, "Hello.").error() == (
        f"{path}: line 1, column 14: no tab and target behind 'friend GitHub'"
    )
    assert "No such file" in invoke("translate", "--glossary", tmp_path / "none", "Hello.").error()


@pytest.mark.parametrize("how", [[], ["--json"], ["--no-split"], ["--alternatives", "2"]])
def test_a_second_run_asks_no_model_and_writes_the_same(tmp_path, monkeypatch, terms, how):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    call = ["translate", "--cache", "--glossary", terms, *how]
    text = b"My friend likes books. Is it 7?\r\n\n42\nMy friend likes books. Is it 7?"
    first = invoke(*call, stdin=text)
    assert first.code == 0
    assert (tmp_path / "onnxmt" / "translations.sqlite").exists()
    monkeypatch.setattr(Seq2SeqModel, "start", None)
    monkeypatch.setattr(Seq2SeqModel, "start_seeing", None)
    assert invoke(*call, stdin=text) == first


def test_processes_share_a_file(tmp_path):
    outcomes = [run("translate", "--cache-file", tmp_path / "m", "--json", "Good morning.") for _ in range(2)]
    assert outcomes[0].code == 0
    assert outcomes[0] == outcomes[1]
    assert json.loads(outcomes[0].out)["text"]


def test_a_damaged_file_is_one_line(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"nothing of that kind" * 10)
    message = invoke("translate", "--cache-file", path, "Hello.").error()
    assert message.startswith(f"the translation memory {path} is damaged")
    assert message.endswith("delete it, or name another file")
    assert "no effect without" in invoke("translate", "--cache-limit", "1GB", "Hello.").error()
