from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.errors import TokenizerError, UnknownLanguageError
from onnxmt.runtime.tokenizer import TokenizerSpec, load_tokenizer, tokenizer_spec
from onnxmt.runtime.tokenizers import language_codes
from tests.tokenizer import families
from tests.tokenizer.families import judge, load, save_as_transformers_does, write
from tests.tokenizer.odd_strings import odd_strings

WRITERS = {
    "m2m_100": families.write_m2m100,
    "nllb": families.write_nllb,
    "mbart": families.write_mbart,
    "mbart50": families.write_mbart50,
    "t5": families.write_t5,
    "mt5": lambda folder: families.write_t5(folder, model_type="mt5", extra_ids=0, additional_special_tokens=None),
    "bart": families.write_bart,
}
PIPELINES = ["mbart", "mbart50", "t5", "mt5", "bart"]
LANGUAGES = {
    # family: (source code, target code, further targets), in the family's own spelling
    "m2m_100": ("fr", "zh", "de"),
    "nllb": ("fra_Latn", "zho_Hans", "zho_Hant"),
    "mbart": ("fr_XX", "zh_CN", "de_DE"),
    "mbart50": ("fr_XX", "zh_CN", "pt_XX"),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    made = {name: write_one(tmp_path_factory.mktemp(name)) for name, write_one in WRITERS.items()}
    # transformers leaves NLLB's languages out when it has only a SentencePiece model, so its judge reads a
    # tokenizer.json with the vocabulary that the model was trained with.
    folder = tmp_path_factory.mktemp("nllb-json")
    write(folder, model_type="m2m_100", tokenizer_config={"tokenizer_class": "NllbTokenizer"})
    (folder / "tokenizer.json").write_text(pipeline_of(load(made["nllb"])).to_str(), encoding="utf-8")
    made["nllb_json"] = folder
    umt5 = tmp_path_factory.mktemp("umt5")  # as google/umt5-small: T5's tokenizer.json under another model type
    save_as_transformers_does(made["t5"], umt5)
    (umt5 / "config.json").write_text('{"model_type": "umt5"}')
    made["umt5"] = umt5
    return made


def pipeline_of(tokenizer):
    return tokenizer._engine._tokenizer


def without_post_processor(serialized: str) -> dict:
    return {key: value for key, value in json.loads(serialized).items() if key != "post_processor"}


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# --- equality with transformers -------------------------------------------------------------------------------------


def assert_equal_on_odd_strings(tokenizer, reference):
    strings = odd_strings()
    assert len(strings) >= 200
    for text in strings:
        ids = tokenizer.encode(text)
        assert ids == reference(text)["input_ids"], text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True), text


@pytest.mark.reference
@pytest.mark.parametrize("name", ["m2m_100", "nllb_json", "umt5", *PIPELINES])
def test_ids_and_text_equal_transformers(folders, name):
    assert_equal_on_odd_strings(load(folders[name]), judge(folders[name]))


@pytest.mark.reference
@pytest.mark.parametrize("name", ["m2m_100", *PIPELINES])
def test_ids_and_text_equal_transformers_for_what_it_saves(folders, name, tmp_path):
    """Most families change their files on the way: a SentencePiece model becomes a tokenizer.json."""
    saved = save_as_transformers_does(folders[name], tmp_path)
    assert_equal_on_odd_strings(load(saved), judge(saved))


@pytest.mark.reference
@pytest.mark.parametrize("name", ["nllb_json", "umt5", *PIPELINES])
def test_the_pipeline_is_transformers_own(folders, name):
    """Normaliser, pre-tokeniser, model, decoder and added tokens are the same objects, so every text is."""
    ours, theirs = load(folders[name]), judge(folders[name])
    assert without_post_processor(pipeline_of(ours).to_str()) == without_post_processor(
        theirs.backend_tokenizer.to_str()
    )


_PAIRS: dict[str, tuple] = {}


@pytest.mark.reference
@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["m2m_100", "nllb_json", "mbart", "mbart50", "t5", "bart"]),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
def test_any_text_is_as_in_transformers(folders, name, text):
    if name not in _PAIRS:
        _PAIRS[name] = load(folders[name]), judge(folders[name])
    tokenizer, reference = _PAIRS[name]
    ids = tokenizer.encode(text)
    assert ids == reference(text)["input_ids"]
    assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)


@pytest.mark.reference
@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(["m2m_100", "nllb_json", "mbart", "mbart50", "t5", "bart"]))
def test_any_ids_decode_as_in_transformers(folders, data, name):
    if name not in _PAIRS:
        _PAIRS[name] = load(folders[name]), judge(folders[name])
    tokenizer, reference = _PAIRS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_limits.target + 8), max_size=12))
    assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)


CHANGES = [
    ("m2m_100", {"extra_special_tokens": ["__zh__", "<sep>"]}),
    ("m2m_100", {"clean_up_tokenization_spaces": True, "src_lang": "de"}),
    ("m2m_100", {"added_tokens_decoder": {"2": {"content": "</s>", "special": True, "lstrip": True}}}),
    ("nllb_json", {"legacy_behaviour": True}),
    ("nllb_json", {"src_lang": "zho_Hans", "clean_up_tokenization_spaces": True}),
    (
        "nllb_json",
        {
            "clean_up_tokenization_spaces": True,
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True,
        },
    ),
    ("nllb_json", {"mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": False, "normalized": False}}),
    ("mbart", {"src_lang": "zh_CN", "mask_token": {"__type": "AddedToken", "content": "<mask>", "rstrip": True}}),
    ("mbart50", {"clean_up_tokenization_spaces": True, "bos_token": "<s>"}),
    ("t5", {"additional_special_tokens": None}),
    ("t5", {"additional_special_tokens": []}),
    ("t5", {"extra_ids": 28, "clean_up_tokenization_spaces": True}),
    ("t5", {"extra_special_tokens": ["library", {"__type": "AddedToken", "content": "black cat", "lstrip": True}]}),
    ("t5", {"added_tokens_decoder": {"5": {"content": "library", "single_word": True, "normalized": False}}}),
    ("bart", {"add_prefix_space": True, "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True}}),
    ("bart", {"sep_token": "<s>", "cls_token": "</s>"}),
]


@pytest.mark.reference
@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_settings_that_change_tokens_equal_transformers(folders, name, changes, tmp_path):
    folder = Path(shutil.copytree(folders[name], tmp_path / "model"))
    edit_config(folder, **changes)
    tokenizer, reference = load(folder), judge(folder)
    for text in [
        *odd_strings(),
        "the library, a  black cat",
        "black  cat librarylibrary library",
        "a  <sep>  __zh__ b",
    ]:
        ids = tokenizer.encode(text)
        assert ids == reference(text)["input_ids"], text
        if name == "m2m_100":  # transformers writes the source's token where the checkpoint does not list it as special
            ids = ids[1:]
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True), text


@pytest.mark.reference
@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "identity"},
        {"user_defined_symbols": ["<2zh>", "@@"], "byte_fallback": True, "vocab_size": 600},
        {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    ],
)
def test_other_sentencepiece_models_equal_transformers(options, tmp_path):
    folder = families.write_t5(tmp_path, options=options)
    assert_equal_on_odd_strings(load(folder), judge(folder))


@pytest.mark.reference
@pytest.mark.parametrize("name", ["m2m_100", "nllb_json", "mbart", "mbart50"])
def test_the_source_language_stands_where_transformers_puts_it(folders, name):
    tokenizer = load(folders[name])
    source = LANGUAGES[name.removesuffix("_json")][0]
    reference = judge(folders[name], src_lang=source)
    for text in ("Yes.", "", "a </s> b"):
        assert tokenizer.encode(text, source=source) == reference(text)["input_ids"]
        assert tokenizer.encode(text, source="French") == reference(text)["input_ids"]


@pytest.mark.reference
@pytest.mark.parametrize("name", ["m2m_100", "nllb_json", "mbart", "mbart50"])
def test_the_forced_token_is_transformers_own(folders, name):
    tokenizer, reference = load(folders[name]), judge(folders[name])
    codes = tokenizer.languages().target
    assert len(codes) == {"m2m_100": 100, "nllb_json": 202, "mbart": 25, "mbart50": 52}[name]
    for code in codes:
        theirs = reference.get_lang_id(code) if name == "m2m_100" else reference.convert_tokens_to_ids(code)
        assert tokenizer.forced_bos_token_id(code) == theirs


# --- literal values -------------------------------------------------------------------------------------------------


def test_language_ids_of_the_published_models():
    """Ids that users of the models know: 128,004 M2M100 tokens, 256,000 NLLB and 250,000 mBART pieces before them."""
    m2m100 = {code: 128_004 + index for index, code in enumerate(language_codes.M2M100)}
    assert (m2m100["en"], m2m100["fr"], m2m100["ko"], m2m100["zh"]) == (128_022, 128_028, 128_052, 128_102)
    nllb = {code: 256_001 + index for index, code in enumerate(language_codes.NLLB)}
    assert (nllb["eng_Latn"], nllb["fra_Latn"], nllb["zho_Hans"]) == (256_047, 256_057, 256_200)
    mbart = {code: 250_001 + index for index, code in enumerate(language_codes.MBART50)}
    assert (mbart["en_XX"], mbart["ro_RO"], mbart["zh_CN"], mbart["sl_SI"]) == (250_004, 250_020, 250_025, 250_052)


def test_nllb_from_its_sentencepiece_model_alone(folders):
    """fairseq's four tokens, the pieces without sentencepiece's three, the languages in order, <mask>."""
    import sentencepiece

    model = str(folders["nllb"] / "sentencepiece.bpe.model")
    size = sentencepiece.SentencePieceProcessor(model_file=model).get_piece_size()
    tokenizer = load(folders["nllb"])
    ids = tokenizer.encode("Yes.", source="en")
    assert ids[0] == size + 1 + 46  # 256,047 behind NLLB-200's 256,000 pieces
    assert ids[-1] == 2
    assert tokenizer.forced_bos_token_id("ace_Arab") == size + 1
    assert tokenizer.forced_bos_token_id("zh") == size + 1 + 199
    assert pipeline_of(tokenizer).token_to_id("<mask>") == size + 1 + 202
    assert [pipeline_of(tokenizer).token_to_id(t) for t in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]
    for text in odd_strings():
        assert tokenizer.encode(text) == load_once(folders["nllb_json"]).encode(text)


_LOADED: dict[Path, object] = {}


def load_once(folder: Path):
    if folder not in _LOADED:
        _LOADED[folder] = load(folder)
    return _LOADED[folder]


@pytest.mark.parametrize("name", [*WRITERS, "umt5"])
def test_one_end_of_sequence_and_nothing_cut(folders, name):
    tokenizer = load_once(folders[name])
    end = 1 if name in ("t5", "mt5", "umt5") else 2
    for text in ("", "Hello", "Man", "18.5 C\nLusaka\n\nMONDAY, 3 MARCH 2025 09:12\nSPORT\n\nMORE"):
        assert tokenizer.encode(text).count(end) == 1, text
    assert len(tokenizer.encode("the machine nobody checks, " * 150)) > 600


@pytest.mark.parametrize("name", [*WRITERS, "umt5"])
def test_chinese_comes_back_without_marks_or_spaces(folders, name):
    """Case T2, languages and special tokens in the ids included."""
    tokenizer = load_once(folders[name])
    text = "图书馆九点开门。"
    ids = tokenizer.encode(text)
    if forced := tokenizer.forced_bos_token_id("zh") if name in LANGUAGES else None:
        ids = [2, forced, *ids]
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", [*WRITERS, "umt5"])
def test_characters_that_a_model_cannot_write(folders, name):
    """Case T2: a model whose vocabulary has no Chinese can be told from one that has."""
    tokenizer = load_once(folders[name])
    assert tokenizer.unwritable("图书馆") == ""
    assert tokenizer.unwritable("图𠀀書馆𠀀") == ("" if name == "bart" else "𠀀書")


@pytest.mark.reference
def test_umt5_with_a_sentencepiece_model_alone(tmp_path):
    """transformers cannot load it under that name, and under one that it looks for forgets the end token."""
    folder = families.write_t5(tmp_path / "ours", model_type="umt5")
    theirs = Path(shutil.copytree(folder, tmp_path / "theirs"))
    (theirs / "spiece.model").rename(theirs / "tokenizer.model")
    tokenizer, reference = load(folder), judge(theirs)
    for text in odd_strings():
        ids = tokenizer.encode(text)
        assert ids == [*reference(text)["input_ids"], 1], text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True).strip(), text


# --- small100 -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def small100(tmp_path_factory) -> Path:
    """small100's files: M2M100's, its own tokenizer class, and a vocabulary of its real size, 128,004."""
    folder = families.write_m2m100(tmp_path_factory.mktemp("small100"), tokenizer_class="SMALL100Tokenizer")
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocabulary |= {f"▁unused{index}": index for index in range(len(vocabulary), 128_004)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder


def test_small100_puts_the_target_first_and_forces_nothing(small100, folders):
    """Golden ids from the authors' tokenizer, which transformers does not have: [target] + pieces + [</s>]; target =
    128,004 + its place in M2M100's list (Korean is 128,052 in their published examples); the pieces are M2M100's own.
    """
    tokenizer, m2m100 = load(small100), load_once(folders["m2m_100"])
    pieces = m2m100.encode("A black cat.")[1:-1]
    assert len(pieces) > 2
    assert tokenizer.encode("A black cat.", target="ko") == [128_052, *pieces, 2]
    assert tokenizer.encode("A black cat.", target="zh-CN") == [128_102, *pieces, 2]
    assert tokenizer.encode("A black cat.", source="en", target="French") == [128_028, *pieces, 2]
    assert tokenizer.encode("", target="en") == [128_022, 2]
    assert tokenizer.forced_bos_token_id("zh") is None
    assert tokenizer.decode([2, 128_102, *pieces, 2]) == "A black cat."
    assert tokenizer.vocabulary_limits.source == 128_103
    assert len(tokenizer.languages().target) == 100


def test_small100_must_be_told_its_target(small100, tmp_path):
    with pytest.raises(UnknownLanguageError, match="must be told its target language and has no default"):
        load(small100).encode("Yes.")
    folder = Path(shutil.copytree(small100, tmp_path / "with-default"))
    edit_config(folder, tgt_lang="zh")
    assert load(folder).encode("Yes.")[0] == 128_102
    assert load(folder).encode("Yes.", target="ko")[0] == 128_052


# --- languages (case G4) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_alias_of_chinese_is_the_same_target(folders, name):
    tokenizer = load_once(folders[name])
    expected = tokenizer.forced_bos_token_id(LANGUAGES[name][1])
    assert expected is not None
    for alias in ("zh", "zh-Hans", "zh-CN", "zh_CN", "zho_Hans", "cmn_Hans", "Chinese", "Simplified Chinese"):
        assert tokenizer.forced_bos_token_id(alias) == expected, alias
    for alias in ("zh-Hant", "zh_TW", "zho_Hant"):
        if name == "nllb":
            assert tokenizer.forced_bos_token_id(alias) == tokenizer.forced_bos_token_id("zho_Hant") != expected
        else:
            with pytest.raises(UnknownLanguageError, match=rf"'{alias}' is not one.*{LANGUAGES[name][1]}"):
                tokenizer.forced_bos_token_id(alias)
            with pytest.raises(UnknownLanguageError, match=alias):
                tokenizer.encode("Yes.", target=alias)
    assert tokenizer.forced_bos_token_id(None) is None


@pytest.mark.parametrize("name", LANGUAGES)
def test_alternating_and_concurrent_languages_do_not_meet(folders, name):
    tokenizer = load_once(folders[name])
    source, target, other = LANGUAGES[name]
    plain = tokenizer.encode("A black cat.")

    def ask(pair):
        return tokenizer.encode("A black cat.", source=pair[0], target=pair[1]), tokenizer.forced_bos_token_id(pair[1])

    pairs = [(None, target), (source, other), (other, source), (None, None)] * 100
    expected = {pair: ask(pair) for pair in pairs}
    assert len({forced for _, forced in expected.values()}) == 4
    assert expected[(None, target)][0] == plain != expected[(source, other)][0]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, pairs)) == [expected[pair] for pair in pairs]
    assert tokenizer.encode("A black cat.") == plain


@pytest.mark.parametrize("name", LANGUAGES)
def test_an_unknown_language_names_the_nearest(folders, name):
    tokenizer = load_once(folders[name])
    with pytest.raises(UnknownLanguageError, match=r"source language 'Chinees' .*'zh"):
        tokenizer.encode("Yes.", source="Chinees")
    with pytest.raises(UnknownLanguageError, match="target language 'tlh'"):
        tokenizer.forced_bos_token_id("tlh")


def test_language_tokens_never_reach_the_text(folders, tmp_path):
    """transformers lets them through when the checkpoint does not list them as special tokens (case T2)."""
    folder = families.write_m2m100(tmp_path, listed=False)
    tokenizer = load(folder)
    ids = tokenizer.encode("a black cat")
    assert tokenizer.decode([2, tokenizer.forced_bos_token_id("zh"), *ids]) == "a black cat"


def test_a_default_source_of_the_checkpoint(folders, tmp_path):
    folder = Path(shutil.copytree(folders["nllb_json"], tmp_path / "model"))
    edit_config(folder, src_lang="zho_Hans", tgt_lang="eng_Latn")
    tokenizer = load(folder)
    assert tokenizer.encode("Yes.")[0] == tokenizer.forced_bos_token_id("zh")
    assert tokenizer.encode("Yes.", source="en")[0] == tokenizer.forced_bos_token_id("en")
    assert tokenizer.forced_bos_token_id(None) is None


# --- state ----------------------------------------------------------------------------------------------------------


def _encode_and_decode(tokenizer, text):
    ids = tokenizer.encode(text)
    return ids, tokenizer.decode(ids)


@pytest.mark.parametrize("name", [*WRITERS, "umt5"])
def test_it_survives_pickling_and_fork(folders, name):
    tokenizer = load_once(folders[name])
    here = _encode_and_decode(tokenizer, "A black cat.")
    assert _encode_and_decode(pickle.loads(pickle.dumps(tokenizer)), "A black cat.") == here
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_encode_and_decode, (tokenizer, "A black cat.")) == here


@pytest.mark.parametrize(("name", "allowed"), [("m2m_100", set()), ("mbart", {"tokenizers"})])
def test_loading_imports_nothing_heavy(folders, name, allowed):
    spec = json.dumps(tokenizer_spec(folders[name], json.loads((folders[name] / "config.json").read_text())).to_dict())
    code = (
        "import sys, json, pathlib; from onnxmt.runtime.tokenizer import TokenizerSpec, load_tokenizer;"
        "load_tokenizer(pathlib.Path(sys.argv[1]), TokenizerSpec.from_dict(json.loads(sys.argv[2])));"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'onnx', 'google.protobuf'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(folders[name]), spec]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == str(sorted(allowed))


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("m2m_100", ["vocab.json", "sentencepiece.bpe.model"]),
        ("nllb", ["sentencepiece.bpe.model"]),
        ("mbart50", ["sentencepiece.bpe.model"]),
        ("t5", ["spiece.model"]),
        ("bart", ["vocab.json", "merges.txt"]),
        ("umt5", ["tokenizer.json"]),
    ],
)
def test_a_missing_file_is_named(folders, name, files, tmp_path):
    config = json.loads((folders[name] / "config.json").read_text())
    for file in files:
        folder = Path(shutil.copytree(folders[name], tmp_path / file))
        spec = tokenizer_spec(folder, config)
        assert set(spec.files) == set(files)
        (folder / file).unlink()
        with pytest.raises(TokenizerError, match=file):
            tokenizer_spec(folder, config)
        with pytest.raises(TokenizerError, match=file):
            load_tokenizer(folder, spec)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("m2m_100", "vocab.json", '{"<unk>": 0}', "lacks the token '</s>'"),
        ("m2m_100", "sentencepiece.bpe.model", "", "not a whole SentencePiece model"),
        ("mbart", "sentencepiece.bpe.model", "half", "cut short|not a whole"),
        ("t5", "spiece.model", "text", "not a SentencePiece model|not a whole"),
        ("bart", "merges.txt", "#version: 0.2\na b c\n", "line 2: 'a b c' is not two pieces"),
        ("bart", "merges.txt", "q€ z\n", "do not fit together"),
        ("bart", "vocab.json", '{"a": 0, "b": 0}', "used twice"),
        ("nllb_json", "tokenizer.json", "{}", "has no model.vocab"),
        (
            "nllb_json",
            "tokenizer.json",
            '{"model": {"vocab": {"a": 0}, "merges": [["a"]]}}',
            "the merge .'a'. is not two",
        ),
        ("umt5", "tokenizer.json", '{"version": "1.0"}', "do not fit together"),
        ("umt5", "tokenizer.json", '{"version"', "not valid JSON|do not fit together"),
        ("t5", "tokenizer.json", '{"model": {"vocab": {"a": 1}}}', "not a list of pieces"),
    ],
)
def test_a_wrong_file_is_named(folders, name, file, content, message, tmp_path):
    folder = Path(shutil.copytree(folders[name], tmp_path / "model"))
    if content == "half":
        whole = (folder / file).read_bytes()
        (folder / file).write_bytes(whole[: len(whole) // 2])
    else:
        (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(TokenizerError, match=message) as caught:
        tokenizer_spec(folder, json.loads((folder / "config.json").read_text()))
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("m2m_100", {"tokenizer_class": "ByT5Tokenizer"}, "tokenizer_class 'ByT5Tokenizer'.*M2M100Tokenizer, NllbTokenizer"),
        ("bart", {"tokenizer_class": "BertTokenizer"}, "tokenizer_class 'BertTokenizer' is not implemented for model_type 'bart'"),
        ("t5", {"split_special_tokens": True}, "split_special_tokens"),
        ("m2m_100", {"sp_model_kwargs": {"reverse": True}}, "sp_model_kwargs.reverse"),
        ("m2m_100", {"language_codes": "other"}, "language_codes 'other'.*m2m100, wmt21"),
        ("t5", {"extra_ids": -1}, "extra_ids is -1"),
        ("t5", {"eos_token": "<end>", "added_tokens_decoder": {"0": 7}}, "added_tokens_decoder"),
        ("mbart", {"model_max_length": []}, "model_max_length"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_implemented_is_named(folders, name, changes, message, tmp_path):
    folder = Path(shutil.copytree(folders[name], tmp_path / "model"))
    edit_config(folder, **changes)
    with pytest.raises(TokenizerError, match=message):
        tokenizer_spec(folder, json.loads((folder / "config.json").read_text()))


def test_a_vocabulary_without_languages_is_refused(folders, tmp_path):
    """What transformers makes of an NLLB checkpoint with a SentencePiece model alone has no languages."""
    data = json.loads(pipeline_of(load_once(folders["nllb_json"])).to_str())
    vocabulary = data["model"]["vocab"]
    data["added_tokens"] = []
    data["model"]["vocab"] = {token: index for token, index in vocabulary.items() if "_" not in token}
    write(
        tmp_path,
        model_type="m2m_100",
        tokenizer_config={"tokenizer_class": "NllbTokenizer", "extra_special_tokens": []},
    )
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(TokenizerError, match="none of its family's language tokens"):
        tokenizer_spec(tmp_path, {"model_type": "m2m_100"})


def test_half_a_surrogate_pair_is_refused(folders):
    for name in ("m2m_100", "mbart", "t5"):
        with pytest.raises(TokenizerError, match=r"lone surrogate U\+DC00"):
            load_once(folders[name]).encode("a\udc00")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(layout="xlm"), "layout 'xlm' is unknown; known: m2m_100"),
        (lambda s: s.pop("pipeline"), "one of 'pieces' and 'pipeline'"),
        (lambda s: s["pipeline"].update(recipe="bert"), "recipe 'bert' is unknown; known: nllb"),
        (lambda s: s.update(codes="zh"), "'codes' is 'zh', not a list of strings"),
        (lambda s: s.update(codes=["zh_CN", "xx_XX"]), "the vocabulary lacks the language xx_XX"),
        (lambda s: s["pipeline"]["added"][0].update(special=1), "'special' is 1, not true or false"),
    ],
)
def test_a_wrong_spec_is_refused(folders, change, message):
    data = json.loads(json.dumps(tokenizer_spec(folders["mbart"], {"model_type": "mbart"}).to_dict()))
    change(data["settings"])
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(folders["mbart"], TokenizerSpec.from_dict(data))


@pytest.mark.reference
@pytest.mark.parametrize("name", [*WRITERS, "umt5"])
def test_vocabulary_limits_and_length_limit(folders, name):
    tokenizer = load_once(folders[name])
    reference = judge(folders["nllb_json" if name == "nllb" else name])
    extra = len(language_codes.M2M100) if name == "m2m_100" else 0
    largest = max(reference.get_vocab().values()) if not extra else reference.encoder_size + extra - 1
    assert tokenizer.vocabulary_limits.source == tokenizer.vocabulary_limits.target == largest
    assert tokenizer.limit == {"m2m_100": 1024, "t5": 512, "mt5": 512, "umt5": 512}.get(name)
