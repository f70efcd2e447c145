"""The regression set: what a new version changes, in texts and in tokens, and what was approved."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmt.errors import UsageError
from onnxmt.measure.sentences import verification_sentences
from onnxmt.store import regression
from onnxmt.store.adding import AddOptions, add, changes_against
from onnxmt.store.comparing import diff
from onnxmt.store.regression import Output, compare, marked
from onnxmt.store.shelf import Shelf
from tests.precision.conftest import demo  # noqa: F401  a trained model, in fp32
from tests.store.bundles import make_bundle

OWN = "Good morning, everybody."


def output(text: str, *tokens: int) -> Output:
    return Output(text=text, tokens=tokens, finished=True)


def test_texts_and_tokens_are_compared() -> None:
    before = {"a": output("x y", 1, 2, 3), "b": output("same", 4), "c": output("same", 5), "gone": output("", 6)}
    after = {"a": output("x z w", 1, 9, 9, 3), "b": output("same", 4), "c": output("same", 6), "new": output("n", 7)}
    found = compare(before, after, labels=("m:1", "m:2"))
    assert (found.compared, found.tokens_only) == (3, 1)
    (changed,) = found.changed
    assert changed.marked == "x [-y-]{+z w+}"
    assert (changed.first_token, changed.tokens_before, changed.tokens_after, changed.tokens_changed) == (1, 3, 4, 2)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("abc", "abc", "abc"),
        ("", "x", "{+x+}"),
        ("x", "", "[-x-]"),
        ("请把门关上", "请把窗关上", "请把[-门-]{+窗+}关上"),
    ],
)
def test_marks(before: str, after: str, shown: str) -> None:
    assert marked(before, after) == shown


def test_a_longer_output_parts_where_the_shorter_one_ends() -> None:
    found = compare({"a": output("x", 1)}, {"a": output("xy", 1, 2)}, labels=("", ""))
    assert found.changed[0].first_token == 1


def test_a_new_version_shows_what_it_changes(shelf: Shelf, demo: Path, tmp_path: Path) -> None:  # noqa: F811
    """The demo model, then the same in int4, without a gate: some sentences change, and the same ones in `diff`."""
    from onnxmt.precision import PRESETS
    from onnxmt.quantization import QuantizeOptions, quantize

    first = add(demo, options=AddOptions(name="m"))
    assert first.changes is None
    assert regression.add_sentences(shelf, [OWN, "", f" {OWN} "]) == 1
    assert regression.add_sentences(shelf, [OWN]) == 0
    quantize(demo, tmp_path / "int4", options=QuantizeOptions(precision=PRESETS["int4"], gate="off"))
    second = add(tmp_path / "int4", options=AddOptions(name="m"))
    sentences = verification_sentences().sentences
    assert second.changes is not None
    assert (second.changes.before, second.changes.after) == ("m:1", "m:2")
    assert second.changes.compared == len(sentences)  # the first was added before the user's own sentence
    assert 0 < len(second.changes.changed) < len(sentences)
    event = shelf.history()[-1]
    assert event.evidence["regression"]["changed"] == len(second.changes.changed)

    found = diff((shelf, "1"), (shelf, "2"))
    assert found.changes is not None
    assert found.changes.compared == len(sentences) + 1  # now it was translated by both
    facts = {fact.name: (fact.first, fact.second) for fact in found.facts}
    assert facts["precision"] == ("fp32", "int4")
    assert "weights.bin" in {fact.name for fact in found.files}
    assert not found.same_content
    assert found.to_dict()["second"] == "m:2"

    outputs = regression.outputs_of(shelf, "1")
    assert regression.approve(shelf, "1", outputs, only=[OWN], reason="read by two people") == 1
    assert set(regression.approved_outputs(shelf)) == {OWN}
    against = changes_against(shelf, shelf.state(), "2", regression.outputs_of(shelf, "2"))
    assert against is not None
    assert (against.before, against.compared) == ("approved", 1)
    assert regression.approve(shelf, "1", outputs) == len(sentences) + 1
    assert shelf.history()[-1].evidence == {"regression_approved": len(sentences) + 1}
    with pytest.raises(UsageError, match=r"not in the regression set, the first is 'Nowhere\.'"):
        regression.approve(shelf, "1", outputs, only=["Nowhere."])


def test_the_same_version_again_changes_nothing(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a")
    add(tmp_path / "a", options=AddOptions(name="m"))
    again = add(tmp_path / "a", options=AddOptions(name="m"))
    assert again.changes is not None
    assert (again.changes.changed, again.changes.tokens_only) == ((), 0)
    assert again.changes.compared > 50


def test_outputs_of_another_onnxmt_are_made_anew(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(tmp_path / "a")
    add(tmp_path / "a", options=AddOptions(name="m"))
    assert regression.read_outputs(shelf, "1") is not None
    monkeypatch.setattr(regression, "_own_version", lambda: "99")
    assert regression.read_outputs(shelf, "1") is None
    assert regression.outputs_of(shelf, "1")
    assert regression.read_outputs(shelf, "1") is not None
