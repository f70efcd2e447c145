"""`onnxmt models` and names of the store in the other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxmt.store.figures import PromoteLimits
from onnxmt.store.shelf import Shelf
from tests.cli.harness import ROOT, invoke
from tests.store.bundles import GOLDEN, make_bundle, quality


@pytest.fixture
def filled(shelf: Shelf, tmp_path: Path) -> Shelf:
    """Two versions of m; the first is in production."""
    for number in (1, 2):
        make_bundle(tmp_path / str(number), marker=str(number), quality=quality(bleu=30 - number))
        assert invoke("models", "add", tmp_path / str(number), "--as", "m", "--no-run").text == f"m:{number}\n"
    assert invoke("models", "promote", "m:1", "--reason", "first").code == 0
    return shelf


def answer(*arguments: str | Path) -> dict[str, object]:
    outcome = invoke(*arguments, "--json")
    assert outcome.code == 0, outcome
    found: dict[str, object] = json.loads(outcome.text)
    return found


def test_list_and_show(filled: Shelf) -> None:
    lines = invoke("models", "list").lines
    assert lines[0].split() == ["version", "precision", "size", "added", "aliases"]
    assert lines[1].startswith("m:1 ")
    assert lines[1].endswith("production")
    assert answer("models", "list")["models"][0]["versions"][1]["name"] == "m:2"  # type: ignore[index]
    shown = answer("models", "show", "m:production")
    assert (shown["name"], shown["stage"]) == ("m:1", "production")
    assert [event["action"] for event in shown["history"]] == ["add", "promote"]  # type: ignore[union-attr]
    assert "quality gate:    passed" in invoke("models", "show", "m:1").text
    history = invoke("models", "show", "m").text
    assert "production: none → 1" in history
    assert "first" in history
    assert answer("models", "show", "m")["aliases"] == {"production": "1"}


def test_an_empty_store_says_what_to_do(store: Path) -> None:
    assert "is empty; add a bundle with: onnxmt models add BUNDLE" in invoke("models", "list").text
    assert "has no model 'm'" in invoke("models", "show", "m").error()
    assert "has no model 'm'" in invoke("translate", "--model", "m:production", "x").error()


def test_promote_is_refused_forced_and_rolled_back(filled: Shelf) -> None:
    refused = invoke("models", "promote", "m:2")
    assert refused.code == 1
    assert "BLEU: 28, now 29: beyond the limit of 0.5" in refused.err
    assert "say why with --reason" in invoke("models", "promote", "m:2", "--force").error()
    forced = invoke("models", "promote", "m:2", "--force", "--reason", "smaller")
    assert forced.code == 0
    assert "m:production is 2, and was 1" in forced.text
    assert "warning: forced: BLEU" in forced.err
    assert invoke("models", "rollback", "m", "--reason", "no").lines == ["m:production is 1 again, and was 2"]
    assert invoke("models", "promote", "m:2", "--to", "canary", "--max-bleu-drop", "2").code == 0
    assert invoke("models", "rollback", "m:canary", "--clear").lines == ["m:canary means nothing any more, and was 2"]
    assert answer("models", "promote", "m:1")["event"] is None


def test_remove_gc_and_verify(filled: Shelf) -> None:
    assert "m:1 is production" in invoke("models", "remove", "m:1").error()
    assert invoke("models", "remove", "m:2").code == 0
    assert answer("models", "gc", "--grace", "0")["m"]["versions"] == ["2"]  # type: ignore[index]
    assert invoke("models", "verify").lines == ["m:1: whole"]
    file = filled.version_folder("1") / "marker.txt"
    file.chmod(0o644)
    file.write_text("x")
    damaged = invoke("models", "verify", "m:production")
    assert damaged.code == 1
    assert "marker.txt has SHA-256" in damaged.text


def test_diff_and_report(filled: Shelf, tmp_path: Path) -> None:
    text = invoke("models", "diff", "m:production", "m:2", "--no-run").text
    assert "marker.txt" in text
    assert "BLEU: 28, now 29: beyond the limit" in text
    assert "0 of 66 translations differ between m:1 and m:2" in invoke("models", "diff", "m:1", "m:2").text
    page = tmp_path / "page.html"
    assert invoke("models", "report", "m:1", "-o", page).lines == [str(page)]
    html = page.read_text()
    assert "<h2>History</h2>" in html
    assert "<td>first</td>" in html
    assert "0 of 66 translations differ" not in html  # there is nothing that it replaced


def test_the_report_of_a_bundle_gets_its_history(shelf: Shelf, tmp_path: Path) -> None:
    assert invoke("models", "add", "demo").text.startswith("demo:1\n")
    assert invoke("models", "report", "demo:1", "-o", tmp_path / "page.html").code == 0
    html = (tmp_path / "page.html").read_text()
    assert html.index("<h2>History</h2>") < html.index("Verification")
    assert html.count("<body") == 1


def test_the_regression_set(filled: Shelf, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("It rained.\n\nGood morning.\n")
    assert answer("models", "regress", "add", "m", "-f", tmp_path / "own.txt", "--category", "mail")["added"] == 2
    assert "1 new sentence, 3 of your own" in invoke("models", "regress", "add", "m", "The sun shines.").text
    assert "compare them with" in invoke("models", "regress", "run", "m:1").text
    assert invoke("models", "regress", "approve", "m:1").lines == ["69 translations of m:1 are approved"]
    assert "0 of 69 translations differ between approved and m:2" in invoke("models", "regress", "run", "m:2").text
    rows = answer("models", "regress", "list", "m")["sentences"]
    assert {"text": "It rained.", "category": "mail", "origin": "own"}.items() <= rows[-3].items()  # type: ignore[index]
    assert "mail\tIt rained.\t" in invoke("models", "regress", "list", "m").text
    assert "has no model 'x'" in invoke("models", "regress", "add", "x", "a").error()
    assert "no sentence to add" in invoke("models", "regress", "add", "m").error()


def test_every_command_takes_a_name(filled: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("translate", "--model", "m:production", "Yes.").text == "是的。\n"
    assert answer("inspect", "m:1")["version"] is None
    for name, source in (("set.src", "Yes."), ("set.ref", "是的。")):
        (tmp_path / name).write_text(f"{source}\n")
    assert invoke("evaluate", "m:1", "--src", "set.src", "--ref", "set.ref", "--against", "m:2").code == 0
    assert invoke("report", "m:1", "-o", "page.html").code == 0
    assert invoke("models", "add", "m:1", "--as", "other", "--no-run").text == "other:1\n"
    quantized = invoke("quantize", "m:1", "--precision", "int8", "--gate", "off")
    assert quantized.text.endswith("m-1-int8\n"), quantized
    assert "has no recorded reference" in invoke("verify", "m:1").error()


@pytest.mark.slow
def test_commands_that_run_a_bundle_in_another_process_take_a_name(filled: Shelf) -> None:
    assert (
        invoke("bench", "m:1", "--rounds", "1", "--source-tokens", "4", "--target-tokens", "4", "--beams", "1").code
        == 0
    )
    assert invoke("plan", "m:1", "--memory", "4G").code == 0


def test_no_command_changes_a_version(filled: Shelf) -> None:
    for command in (
        ("verify", "m:1", "--write", "--reference", "demo"),
        ("bench", "m:1", "--write"),
        ("report", "m:1"),
        ("quantize", str(GOLDEN), "-o", str(filled.version_folder("1")), "--overwrite"),
    ):
        assert "m:1 is a version in the store, which never changes" in invoke(*command).error(), command


def test_the_docs_tell_the_defaults_and_only_options_that_exist() -> None:
    text = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `--(max-\w+-\w+)` \| ([\d.]+) \|", text, re.MULTILINE))
    assert rows == {name.replace("_", "-"): f"{value:g}" for name, value in vars(PromoteLimits()).items()}
    verbs = ("add", "list", "show", "diff", "promote", "rollback", "remove", "gc", "verify", "report")
    pages = [invoke("models", verb, "--help").text for verb in verbs]
    pages += [invoke("models", "regress", verb, "--help").text for verb in ("add", "list", "run", "approve")]
    pages += [invoke(verb, "--help").text for verb in ("serve", "verify", "bench", "evaluate", "migrate", "translate")]
    named = set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", text))
    assert {option for option in named if not any(option in page for page in pages)} == set()


def test_wrong_names(filled: Shelf) -> None:
    assert "NAME:VERSION or NAME:ALIAS" in invoke("models", "promote", "m").error()
    assert "m:9 names no version; versions of m: 1, 2; aliases: production = 1" in invoke("inspect", "m:9").error()
    assert "a checkpoint is read here" in invoke("migrate", "m:1").error()
    assert "the name 'a/b' cannot be used" in invoke("models", "add", "demo", "--as", "a/b").error()
    for verb in ("add", "list", "show", "diff", "promote", "rollback", "remove", "gc", "verify", "report"):
        outcome = invoke("models", verb, "--help")
        assert f"onnxmt models {verb}" in outcome.text.partition("Example")[2], verb
