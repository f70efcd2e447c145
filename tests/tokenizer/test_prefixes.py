from __future__ import annotations

from pathlib import Path

import pytest

from onnxmt.errors import TokenizerError, UnknownLanguageError
from onnxmt.runtime.tokenizer import LanguageCodes, tokenizer_spec
from onnxmt.runtime.tokenizers.prefixes import Prefix, read_prefix
from tests.tiny import write_marian_tokenizer
from tests.tokenizer import families
from tests.tokenizer.families import judge, load

# What t5-small's config.json says.
TASKS = {
    "summarization": {"prefix": "summarize: ", "num_beams": 4},
    "translation_en_to_de": {"prefix": "translate English to German: ", "max_length": 300},
    "translation_en_to_fr": {"prefix": "translate English to French: "},
    "translation_en_to_ro": {"prefix": "translate English to Romanian: "},
}
CHINESE = "translate English to Chinese: "


def t5(folder: Path, **config: object) -> Path:
    families.write_t5(folder)
    return families.write(folder, model_type="t5", tokenizer_config={"tokenizer_class": "T5Tokenizer"}, **config)


@pytest.mark.reference
def test_the_target_chooses_the_task(tmp_path):
    folder = t5(tmp_path, task_specific_params=TASKS)
    tokenizer, reference = load(folder), judge(folder)

    def expected(text: str) -> list[int]:
        return reference(text)["input_ids"]

    assert tokenizer.encode("Yes.", target="de") == expected("translate English to German: Yes.")
    assert tokenizer.encode("Yes.", source="en", target="French") == expected("translate English to French: Yes.")
    assert tokenizer.encode("", target="ron_Latn") == expected("translate English to Romanian: ")
    assert tokenizer.encode("Yes.") == expected("Yes.")  # as in transformers: who names no language writes the prefix
    assert tokenizer.languages() == LanguageCodes(source=("en",), target=("de", "fr", "ro"))
    with pytest.raises(
        UnknownLanguageError, match=r"target language 'zh' .* it has .*'de' \(German\), 'fr' \(French\)"
    ):
        tokenizer.encode("Yes.", target="zh")
    with pytest.raises(UnknownLanguageError, match=r"source language 'fr' .* it has 'en'"):
        tokenizer.encode("Yes.", source="fr", target="de")
    with pytest.raises(
        UnknownLanguageError, match=r"3 prefixes for this: say which target language, one of de, fr, ro"
    ):
        tokenizer.encode("Yes.", source="en")
    assert tokenizer.forced_bos_token_id("de") is None
    with pytest.raises(UnknownLanguageError, match="'zh'"):
        tokenizer.forced_bos_token_id("zh")


@pytest.mark.reference
@pytest.mark.parametrize(
    ("config", "prefix"),
    [
        ({"prefix": CHINESE}, None),
        ({"task_specific_params": {"translation_en_to_zh": {"prefix": CHINESE}}}, None),
        ({"task_specific_params": TASKS}, CHINESE),
        ({"prefix": "summarize: "}, CHINESE),
    ],
)
def test_one_prefix_always_stands(config, prefix, tmp_path):
    folder = t5(tmp_path, **config)
    tokenizer = load(folder, prefix=prefix)
    expected = judge(folder)(CHINESE + "Yes.")["input_ids"]
    for target in (None, "zh", "zh-CN", "Chinese"):
        assert tokenizer.encode("Yes.", target=target) == expected
    assert tokenizer.encode("Yes.", source="eng_Latn") == expected
    with pytest.raises(UnknownLanguageError, match=r"target language 'de' .* it has 'zh'"):
        tokenizer.encode("Yes.", target="de")


@pytest.mark.reference
def test_a_prefix_without_languages_stands_but_answers_for_none(tmp_path):
    folder = t5(tmp_path)
    tokenizer = load(folder, prefix="simplify: ")
    assert tokenizer.encode("Yes.") == judge(folder)("simplify: Yes.")["input_ids"]
    with pytest.raises(UnknownLanguageError, match="no choice of target language"):
        tokenizer.encode("Yes.", target="zh")
    assert tokenizer.encode("Yes.", source="en") == tokenizer.encode("Yes.")


@pytest.mark.reference
def test_no_prefix_at_all(tmp_path):
    tokenizer, reference = load(t5(tmp_path)), judge(tmp_path)
    assert tokenizer.encode("Yes.") == reference("Yes.")["input_ids"]
    assert tokenizer.languages() == LanguageCodes(source=(), target=())
    assert load(t5(tmp_path, prefix="x: "), prefix="").encode("Yes.") == reference("Yes.")["input_ids"]


@pytest.mark.reference
def test_madlad_is_told_its_target_by_a_token(tmp_path):
    folder = families.write_t5(tmp_path, options={"user_defined_symbols": ["<2zh>", "<2en>", "<2zh_Hant>", "@@"]})
    tokenizer, reference = load(folder), judge(folder)
    assert tokenizer.languages() == LanguageCodes(source=(), target=("en", "zh", "zh_Hant"))
    assert tokenizer.encode("Yes.", target="cmn_Hans") == reference("<2zh> Yes.")["input_ids"]
    assert tokenizer.encode("Yes.", target="zh-TW") == reference("<2zh_Hant> Yes.")["input_ids"]
    assert tokenizer.encode("Yes.", source="fr", target="en") == reference("<2en> Yes.")["input_ids"]
    assert tokenizer.encode("Yes.") == reference("Yes.")["input_ids"]
    with pytest.raises(UnknownLanguageError, match="target language 'de'"):
        tokenizer.encode("Yes.", target="de")


def test_two_sources_for_one_target_need_the_source(tmp_path):
    tasks = {f"translation_{s}_to_zh": {"prefix": f"{s} to zh: "} for s in ("en", "de")}
    tokenizer = load(t5(tmp_path, task_specific_params=tasks))
    with pytest.raises(UnknownLanguageError, match="say which source language, one of de, en"):
        tokenizer.encode("Yes.", target="zh")
    assert tokenizer.encode("Yes.", source="en", target="zh") != tokenizer.encode("Yes.", source="de", target="zh")


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("translate English to Chinese: ", "en", "zh"),
        ("translate English to Chinese:", "en", "zh"),
        ("Translate from English to Traditional Chinese: ", "en", "zh_Hant"),
        ("translate Chinese into German: ", "zh", "de"),
        ("translate Elvish to Chinese: ", None, "zh"),
        ("zh: ", None, None),
        ("", None, None),
    ],
)
def test_what_a_prefix_says_about_languages(text, source, target):
    assert read_prefix(text) == Prefix(text=text, source=source, target=target)


def test_a_prefix_is_refused_where_languages_are_tokens(tmp_path):
    families.write_mbart(tmp_path / "mbart")
    with pytest.raises(TokenizerError, match=r"prefix .* is for T5 and BART models"):
        tokenizer_spec(tmp_path / "mbart", {"model_type": "mbart"}, prefix="zh: ")
    (tmp_path / "marian").mkdir()
    write_marian_tokenizer(tmp_path / "marian")
    with pytest.raises(TokenizerError, match=r"not for Marian"):
        tokenizer_spec(tmp_path / "marian", {"model_type": "marian"}, prefix="zh: ")
