from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxmt.errors import (
    BundleFileMissingError,
    BundleFormatError,
    GenerationSettingsError,
    InputTooLongError,
    ModelNotFoundError,
    SessionError,
    TokenizerError,
    UnknownLanguageError,
    UsageError,
)
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.runtime.translator import Translator
from tests.runtime.conftest import FORMAT1

ONE = RuntimeOptions(threads=1)
RAW = TranslateOptions(split=False)
KNOWN = {
    "Yes.": "是的。",
    "It rained.": "下雨了。",
    "The library opens at nine.": "图书馆九点开门。",
    "I will bring the umbrella because it may rain.": "我会带雨伞，因为可能下雨。",
}


def test_text_in_text_out_and_list_in_list_out(translator: Translator) -> None:
    assert translator.translate("Yes.") == "是的。"
    assert translator.translate(list(KNOWN)) == list(KNOWN.values())
    assert translator.translate(("Yes.",)) == ["是的。"]
    assert translator.translate([]) == []


@pytest.mark.parametrize("order", list(itertools.permutations(["Yes.", "It rained.", list(KNOWN)[3]])))
@pytest.mark.parametrize("beams", [1, 4])
def test_outputs_permute_with_inputs(translator: Translator, order: tuple[str, ...], beams: int) -> None:
    """Cases B1 and B2: alone, together, and in every order, the same tokens."""
    options = TranslateOptions(split=False, beams=beams)
    alone = {text: translator.translate_detailed(text, options=options) for text in order}

    together = translator.translate_detailed(list(order), options=options)

    assert [t.tokens for t in together] == [alone[text].tokens for text in order]
    assert [t.score for t in together] == pytest.approx([alone[text].score for text in order], abs=1e-5)
    assert [t.text for t in together] == [KNOWN[text] for text in order]


@pytest.mark.parametrize("budget", [1, 40, 100, 100_000])
def test_the_size_of_batches_changes_nothing(translator: Translator, budget: int) -> None:
    texts = list(KNOWN) * 5

    assert translator.translate(texts, options=TranslateOptions(batch_tokens=budget)) == list(KNOWN.values()) * 5


def test_details(translator: Translator) -> None:
    found = translator.translate_detailed("It rained.")

    assert found.source == "It rained."
    assert found.score == pytest.approx(-0.00133, abs=1e-4)
    assert 0 not in found.tokens  # EOS is not counted
    assert translator.tokenizer.decode(found.tokens) == "下雨了。"
    assert found.finished
    assert found.warnings == found.alternatives == ()
    assert [(s.source, s.start, s.end, s.text) for s in found.segments] == [("It rained.", 0, 10, "下雨了。")]
    assert found.error is None
    assert json.loads(json.dumps(found.to_dict())) == {
        "source": "It rained.", "text": "下雨了。", "score": found.score, "tokens": list(found.tokens),
        "finished": True, "warnings": [],
    }  # fmt: skip


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("text", ["", " ", "\t", "\u3000"])
def test_a_blank_text_never_reaches_the_model(translator: Translator, text: str, split: bool) -> None:
    found = translator.translate_detailed(text, options=TranslateOptions(split=split))

    assert (found.text, found.score, found.tokens, found.finished, found.error) == ("", None, (), True, None)
    assert found.to_dict()["score"] is None


@pytest.mark.parametrize("text", ["😀", "12.5", "https://example.org/a_b?x=1", "…"])
def test_what_needs_no_translation_passes_through(translator: Translator, text: str) -> None:
    found = translator.translate_detailed(f"{text}\n  Yes.")

    assert found.text == f"{text}\n  是的。"
    assert [s.score is None for s in found.segments] == [True, False]
    assert translator.translate_detailed(text).score is None


def test_without_split_even_that_goes_to_the_model(translator: Translator) -> None:
    assert translator.translate_detailed("12.5", options=RAW).score is not None


def test_segments_are_joined_as_the_source_stood(translator: Translator) -> None:
    """Cases S3 and S4."""
    text = "\n  It rained. We stayed in.\r\n\r\n\tYes.\n"

    found = translator.translate_detailed(text)

    assert found.text == "\n  下雨了。我们待在家里。\r\n\r\n\t是的。\n"
    assert [text[s.start : s.end] for s in found.segments if s.score is not None] == [
        "It rained.",
        "We stayed in.",
        "Yes.",
    ]
    parts = [s for s in found.segments if s.score is not None]
    assert found.tokens == parts[0].tokens + parts[1].tokens + parts[2].tokens
    weights = [len(s.tokens) + 1 for s in parts]
    mean = sum(s.score * w for s, w in zip(parts, weights, strict=True)) / sum(weights)  # type: ignore[operator]
    assert found.score == pytest.approx(mean)
    assert [s["text"] for s in found.to_dict()["segments"]] == [s.text for s in found.segments]


def test_menus_keep_their_lines(translator: Translator) -> None:
    """Case I1."""
    found = translator.translate("18.5 C\nLusaka\n\nMONDAY, 3 MARCH 2025 09:12\nSPORT\n\nMORE")

    assert [bool(line) for line in found.split("\n")] == [True, True, False, True, True, False, True]


def test_an_unfinished_output_is_flagged_and_never_silent(translator: Translator) -> None:
    """Cases L1 and I1: this sentence sends the tiny model into a loop."""
    found = translator.translate_detailed("The cat opens the door.", options=TranslateOptions(beams=1, text=None))

    assert not found.finished
    assert {(w.kind, w.span) for w in found.warnings} == {("length_cap", (0, 23)), ("repetition", (0, 23))}
    assert "cut at 39 tokens" in found.warnings[0].message
    assert found.to_dict()["warnings"][0]["span"] == [0, 23]


def test_max_new_tokens_is_a_cap_that_is_flagged(translator: Translator) -> None:
    found = translator.translate_detailed("It rained.", options=TranslateOptions(max_new_tokens=2, text=None))

    assert len(found.tokens) == 1  # the second is the forced EOS, which does not count
    assert [w.kind for w in found.warnings] == ["length_cap"]


def test_a_request_beyond_the_position_table_is_cut_there(translator: Translator) -> None:
    """Case L1: 64 positions give 64 tokens at most, not a Gather error."""
    options = TranslateOptions(beams=1, max_new_tokens=5000, min_new_tokens=4000)

    found = translator.translate_detailed("It rained.", options=options)

    assert len(found.tokens) == 63
    assert "cut at 64 tokens" in found.warnings[0].message


def test_the_limit_is_the_smaller_one(translator: Translator, tmp_path: Path) -> None:
    assert translator.limit == 64
    changed = shutil.copytree(FORMAT1 / "bundle", tmp_path / "bundle")
    manifest = json.loads((changed / "manifest.json").read_text(encoding="utf-8"))
    manifest["tokenizer"]["settings"]["limit"] = 10
    (changed / "manifest.json").write_text(json.dumps(manifest))
    with Translator.load(changed, options=ONE) as short:
        assert short.limit == 10
        pieces = short.translate_detailed("The library opens at nine.").segments
        assert len(pieces) > 1
        assert all(len(short.tokenizer.encode(piece.source)) <= 10 for piece in pieces)


def test_a_700_token_sentence_is_split_and_nothing_is_lost(translator: Translator) -> None:
    """Case L1."""
    text = "the black cat, " * 150
    assert len(translator.tokenizer.encode(text)) > 700

    found = translator.translate_detailed(text, options=TranslateOptions(beams=1, max_new_tokens=5))

    assert len(found.segments) > 10
    assert "".join(s.source for s in found.segments).replace(" ", "") == text.replace(" ", "")


def test_over_long_without_split_is_an_error_of_that_text_alone(translator: Translator) -> None:
    long = "cat " * 100
    with pytest.raises(InputTooLongError, match="and the model takes at most 64: split it into sentences"):
        translator.translate(long, options=RAW)
    with pytest.raises(InputTooLongError) as caught:
        translator.translate(["Yes.", long], options=RAW)
    assert caught.value.__notes__ == [f"in text 1 of those given: {long[:60]!r}"]

    found = translator.translate_detailed(["Yes.", long, "It rained."], options=RAW, errors="return")

    assert [t.text for t in found] == ["是的。", "", "下雨了。"]
    assert found[1].error is not None
    assert "tokens long and the model takes at most 64" in found[1].error
    assert found[1].to_dict()["error"] == found[1].error
    assert (found[1].score, found[1].tokens, found[1].finished) == (None, (), False)
    assert "error" not in found[0].to_dict()


def test_alternatives_come_best_first(translator: Translator) -> None:
    options = TranslateOptions(alternatives=3, text=None)  # the layer may take another one than the model's best
    found = translator.translate_detailed("Where is the red umbrella?", options=options)

    scores = [found.score, *(a.score for a in found.alternatives)]
    assert len(found.alternatives) == 3
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    assert len({found.tokens, *(a.tokens for a in found.alternatives)}) == 4
    assert [a["text"] for a in found.to_dict()["alternatives"]] == [a.text for a in found.alternatives]


def test_alternatives_of_several_segments_join_by_rank(translator: Translator) -> None:
    found = translator.translate_detailed("It rained. Yes.", options=TranslateOptions(alternatives=1))

    first, second = found.segments
    (other,) = found.alternatives
    assert other.tokens == first.alternatives[0].tokens + second.alternatives[0].tokens


def test_sampling_is_reproducible_by_seed_however_batches_are_cut(translator: Translator) -> None:
    texts = ["Where is the red umbrella?", "The cat opens the door.", "Yes, please."] * 3

    def drawn(seed: int, batch_tokens: int) -> list[tuple[int, ...]]:
        options = TranslateOptions(
            sample=True, temperature=3.0, seed=seed, batch_tokens=batch_tokens, max_new_tokens=12
        )
        return [t.tokens for t in translator.translate_detailed(texts, options=options)]

    assert drawn(1, 4000) == drawn(1, 4000) == drawn(1, 1)
    assert drawn(1, 4000) != drawn(2, 4000)
    assert len(set(drawn(1, 4000))) > 5
    options = TranslateOptions(sample=True, temperature=3.0, seed=1, max_new_tokens=12)
    assert [t.tokens for t in translator.translate_stream(texts, options=options)] == drawn(1, 4000)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "a text or a list of texts can be translated; found NoneType"),
        (5, "found int"),
        (b"bytes", "found bytes"),
        ({"Yes."}, "found set"),
        (["Yes.", None, 3], "item 1 is NoneType, item 2 is int"),
        ([["Yes."]], "item 0 is list"),
    ],
)
def test_what_is_not_text_is_refused(translator: Translator, wrong: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        translator.translate(wrong)  # type: ignore[call-overload]


def test_a_text_that_is_not_unicode_is_an_error_of_that_text(translator: Translator) -> None:
    with pytest.raises(TokenizerError):
        translator.translate("a \ud800 b")
    found = translator.translate_detailed(["a \ud800 b", "Yes."], errors="return")
    assert found[0].error is not None
    assert found[1].text == "是的。"


def test_unknown_languages_are_refused(translator: Translator) -> None:
    with pytest.raises(UnknownLanguageError):
        translator.translate("Yes.", options=TranslateOptions(target="deu"))
    with pytest.raises(UnknownLanguageError):
        translator.translate(">>deu<< Yes.")


@pytest.mark.parametrize("target", ["zh", "zh-Hans", "zh_CN", "zho_Hans", "cmn_Hans"])
def test_every_name_of_chinese_joins_without_a_space(translator: Translator, target: str) -> None:
    """Case S4."""
    assert translator.translate("It rained. Yes.", options=TranslateOptions(target=target)) == "下雨了。是的。"


def test_a_code_like_mark_inside_a_text_is_text(translator: Translator) -> None:
    assert translator.translate_detailed("It rained. >>NOTE<< Yes.").text.startswith("下雨了。")


def test_errors_is_checked(translator: Translator) -> None:
    with pytest.raises(UsageError, match="errors is 'ignore'; allowed: 'raise', 'return'"):
        translator.translate_detailed("Yes.", errors="ignore")  # type: ignore[call-overload]


def test_a_stream_reads_little_ahead_and_keeps_order(translator: Translator) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for text in itertools.cycle(KNOWN):
            read += 1
            yield text

    stream = translator.translate_stream(endless(), options=TranslateOptions(beams=1))
    assert next(stream).text == "是的。"
    assert read == 4
    found: list[Translation] = list(itertools.islice(stream, 599))
    assert [t.text for t in found[:3]] == ["下雨了。", "图书馆九点开门。", "我会带雨伞，因为可能下雨。"]
    assert [t.text for t in found] == list(itertools.islice(itertools.cycle(KNOWN.values()), 1, 600))
    assert read <= 600 + 1024


def test_a_stream_bounds_characters_too(translator: Translator) -> None:
    read = 0

    def large() -> Iterator[str]:
        nonlocal read
        for _ in range(50):
            read += 1
            yield "12345 " * 20_000

    stream = translator.translate_stream(large())
    next(stream)
    assert read == 1


def test_a_window_is_answered_before_the_next_is_asked_for(translator: Translator) -> None:
    asked = []

    def arriving() -> Iterator[list[str]]:
        for window in (["Yes."], [], ["It rained.", "Thank you."]):
            asked.append(len(window))
            yield window

    answers = translator.translate_windows(arriving())
    assert next(answers).text == "是的。"
    assert asked == [1]
    assert [t.text for t in answers] == ["下雨了。", "谢谢。"]
    assert asked == [1, 0, 2]


def test_a_stream_refuses_a_text_and_wrong_options_at_once(translator: Translator) -> None:
    with pytest.raises(UsageError, match="found one text: use translate_detailed"):
        translator.translate_stream("Yes.")
    with pytest.raises(UsageError, match="9 alternatives need 10 beams"):
        translator.translate_stream([], options=TranslateOptions(alternatives=9))
    with pytest.raises(UsageError, match="item 0 is int"):
        list(translator.translate_stream([5]))  # type: ignore[list-item]


def test_a_closed_translator_says_so() -> None:
    with Translator.load(FORMAT1 / "bundle", options=ONE) as loaded:
        assert loaded.threads == 1
        assert loaded.provider == "CPUExecutionProvider"
    with pytest.raises(SessionError, match="was closed: load the bundle again"):
        loaded.translate("Yes.")


def test_loading_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no bundle at"):
        Translator.load(tmp_path / "nowhere")
    copy = shutil.copytree(FORMAT1 / "bundle", tmp_path / "copy")
    (copy / "target.spm").unlink()
    with pytest.raises(BundleFileMissingError, match=r"target\.spm"):
        Translator.load(copy)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", BundleFormatError),
        ("[]", BundleFormatError),
        ("{}", GenerationSettingsError),
        ('{"decoder_start_token_id": 1, "surprise": 2}', GenerationSettingsError),
    ],
)
def test_settings_that_cannot_be_read_stop_the_load(tmp_path: Path, text: str, error: type[Exception]) -> None:
    """Case G1: a missing start token is an error, never a guess."""
    from onnxmt.bundle import read_bundle, update_manifest

    copy = shutil.copytree(FORMAT1 / "bundle", tmp_path / "copy")
    bundle = read_bundle(copy)
    (copy / "generation_config.json").write_text(text)
    update_manifest(bundle, bundle.manifest, written=["generation_config.json"])
    with pytest.raises(error):
        Translator.load(copy, options=ONE)
