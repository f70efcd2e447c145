from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import UnknownLanguageError
from onnxmt.runtime.language_table import ROWS
from onnxmt.runtime.languages import (
    Language,
    is_chinese,
    language_name,
    nearest_languages,
    parse_language,
    resolve_language,
    short_code,
)
from onnxmt.runtime.tokenizers.language_codes import M2M100, MBART25, MBART50, NLLB, WMT21

FAMILIES = {"m2m_100": M2M100, "wmt21": WMT21, "nllb": NLLB, "mbart": MBART25, "mbart50": MBART50}


def resolve(requested: str, supported) -> str:
    return resolve_language(requested, supported, role="target")


# The one alias table of issue 3, by family; None: refused.
ALIASES = [
    # alias, M2M100, NLLB, mBART-50, opus-mt
    ("en", "en", "eng_Latn", "en_XX", "eng"),
    ("eng_Latn", "en", "eng_Latn", "en_XX", "eng"),
    ("en_XX", "en", "eng_Latn", "en_XX", "eng"),
    ("en-GB", "en", "eng_Latn", "en_XX", "eng"),
    ("English", "en", "eng_Latn", "en_XX", "eng"),
    ("zh", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("ZH", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zh-Hans", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zh-CN", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zh_CN", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zh-Hans-CN", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zh_SG", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zho_Hans", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("cmn_Hans", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("cmn", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("chi", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("Chinese", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("Simplified Chinese", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("Chinese (Simplified)", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("中文", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("简体中文", "zh", "zho_Hans", "zh_CN", "cmn_Hans"),
    ("zh-Hant", None, "zho_Hant", None, "cmn_Hant"),
    ("zh_TW", None, "zho_Hant", None, "cmn_Hant"),
    ("zh-HK", None, "zho_Hant", None, "cmn_Hant"),
    ("zho_Hant", None, "zho_Hant", None, "cmn_Hant"),
    ("Traditional Chinese", None, "zho_Hant", None, "cmn_Hant"),
    ("yue", None, "yue_Hant", None, "yue_Hant"),
    ("zh-yue", None, "yue_Hant", None, "yue_Hant"),
    ("Cantonese", None, "yue_Hant", None, "yue_Hant"),
    ("pt-BR", "pt", "por_Latn", "pt_XX", "pt_br"),
    ("ar", "ar", "arb_Arab", "ar_AR", "ara"),
    ("fa", "fa", "pes_Arab", "fa_IR", None),
    ("sr", "sr", "srp_Cyrl", None, "srp_Latn"),
    ("sr-Latn", None, None, None, "srp_Latn"),
    ("no", "no", "nob_Latn", None, None),
    ("Filipino", "tl", "tgl_Latn", "tl_XX", None),
    ("sw", "sw", "swh_Latn", "sw_KE", None),
    ("mn", "mn", "khk_Cyrl", "mn_MN", None),
    ("nso", "ns", "nso_Latn", None, None),
]
OPUS = ["eng", "cmn_Hans", "cmn_Hant", "yue_Hant", "pt_br", "ara", "srp_Latn", "fra"]


@pytest.mark.parametrize(("alias", "m2m100", "nllb", "mbart50", "opus"), ALIASES)
def test_one_alias_table_for_all_families(alias, m2m100, nllb, mbart50, opus):
    for supported, expected in ((M2M100, m2m100), (NLLB, nllb), (MBART50, mbart50), (OPUS, opus)):
        if expected is None:
            with pytest.raises(UnknownLanguageError, match=alias):
                resolve(alias, supported)
        else:
            assert resolve(alias, supported) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_every_language_of_every_family_is_known_and_is_itself(family):
    codes = FAMILIES[family]
    for code in codes:
        assert language_name(code), code
        assert resolve(code, codes) == code
        assert resolve(code.lower().replace("_", "-"), codes) == code
        assert resolve(language_name(code), codes) == code, code


def test_no_two_codes_of_a_family_mean_the_same():
    for codes in FAMILIES.values():
        meanings = [parse_language(code) for code in codes]
        assert len({(meaning.base, meaning.script) for meaning in meanings}) == len(codes)


def test_the_table_has_no_code_or_name_twice():
    codes, names = [], []
    for line in ROWS.strip().splitlines():
        base, script, others, shown = (cell.strip() for cell in line.split("|"))
        assert (len(base), len(script)) == (3, 4), line
        codes += [base, *others.split()]
        names += [name.strip().casefold() for name in shown.split(";")]
    assert len(codes) == len(set(codes))
    assert len(names) == len(set(names))


def test_families_speak_to_each_other():
    """Nearly every M2M100 and mBART language is found in NLLB by its own code."""
    for codes in (M2M100, MBART50):
        missing = []
        for code in codes:
            try:
                resolve(code, NLLB)
            except UnknownLanguageError:
                missing.append(code)
        assert missing in ([], ["br", "fy"])  # Breton and Frisian are not in NLLB-200


@pytest.mark.parametrize(
    ("requested", "supported", "nearest"),
    [
        ("zh-Hant", M2M100, "zh"),
        ("Chinees", NLLB, "zho_Hans"),
        ("sr-Latn", NLLB, "srp_Cyrl"),
        ("Germann", MBART50, "de_DE"),
        ("ukrainain", M2M100, "uk"),
    ],
)
def test_the_nearest_language_comes_first(requested, supported, nearest):
    assert nearest_languages(requested, supported)[0] == nearest
    with pytest.raises(UnknownLanguageError, match=rf"'{requested}' .* the nearest of its \d+ are '{nearest}' \("):
        resolve(requested, supported)


def test_few_languages_are_all_named():
    with pytest.raises(UnknownLanguageError, match=r"it has 'fra' \(French\), 'deu' \(German\)|'deu'.*'fra'"):
        resolve("zh", ["deu", "fra"])
    with pytest.raises(UnknownLanguageError, match="no choice of source language; leave it out"):
        resolve_language("zh", [], role="source")


def test_a_bare_chinese_code_is_never_traditional():
    with pytest.raises(UnknownLanguageError):
        resolve("zh", ["zh_TW"])
    assert resolve("zh", ["zh_TW", "zh_cn", "zh"]) == "zh"
    assert resolve("zho_Hans", ["zh_TW", "zh_cn", "zh"]) in ("zh", "zh_cn")
    assert resolve("zh_CN", ["zh_TW", "zh_cn", "zh"]) == "zh_cn"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("zh", True), ("zh-Hans", True), ("zh_CN", True), ("zho_Hans", True), ("cmn_Hans", True), ("zho", True),
        ("zh-Hant", True), ("zh_TW", True), ("Chinese", True), ("yue_Hant", True), ("wuu", True), ("lzh_Hans", True),
        ("zh_Latn", False), ("nan_Latn", False), ("jpn_Jpan", False), ("ja", False), ("ko", False), ("en", False),
        ("mul", False), ("", False), ("cs_CZ", False),
    ],
)  # fmt: skip
def test_is_chinese(code, expected):
    """Case S4: every alias joins sentences without a space."""
    assert is_chinese(code) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zh-TW", Language(base="zho", script="Hant", region="TW")),
        ("en_XX", Language(base="eng")),
        ("eng-Latn-US", Language(base="eng", script="Latn", region="US")),
        ("es-419", Language(base="spa", region="419")),
        ("qqq", Language(base="qqq")),
        ("xx", None),
        ("", None),
        ("en_", Language(base="eng")),
        ("en_Latn_Latn", None),
        ("not a language", None),
        ("ROMANCE", None),
        ("zh-CN-x-private", None),
    ],
)
def test_parse_language(text, expected):
    assert parse_language(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Chinese", "zh"), ("zho_Hant", "zh_Hant"), ("English", "en"), ("yue", "yue"), ("zle", None), ("Elvish", None)],
)
def test_short_code(text, expected):
    assert short_code(text) == expected


@given(st.text(max_size=20))
def test_any_request_resolves_or_is_refused_in_one_line(text):
    try:
        message = resolve(text, NLLB)
    except UnknownLanguageError as error:
        message = str(error)
    assert "\n" not in message
    assert message in NLLB or "nearest of its 202" in message


def test_a_huge_request_is_neither_read_nor_repeated():
    with pytest.raises(UnknownLanguageError) as caught:
        resolve("zh" * 500_000, NLLB)
    assert len(str(caught.value)) < 400
