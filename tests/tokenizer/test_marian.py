from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxmt.errors import TokenizerError, UnknownLanguageError
from onnxmt.runtime.tokenizer import LanguageCodes, Tokenizer, TokenizerSpec, load_tokenizer, tokenizer_spec
from tests.tiny import write_marian_tokenizer
from tests.tokenizer.odd_strings import odd_strings

CONFIG = {"model_type": "marian"}


def load(folder: Path) -> Tokenizer:
    spec = tokenizer_spec(folder, CONFIG)
    return load_tokenizer(folder, TokenizerSpec.from_dict(json.loads(json.dumps(spec.to_dict()))))


def judge(folder: Path):
    from transformers import AutoTokenizer

    (folder / "config.json").write_text(json.dumps(CONFIG))
    return AutoTokenizer.from_pretrained(folder)


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_vocabulary(folder: Path, change, name: str = "vocab.json") -> None:
    vocabulary = json.loads((folder / name).read_text(encoding="utf-8"))
    change(vocabulary)
    (folder / name).write_text(json.dumps(vocabulary), encoding="utf-8")


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    write_marian_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def separate(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("separate")
    write_marian_tokenizer(folder, separate_vocabs=True)
    return folder


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("multilingual")
    write_marian_tokenizer(folder)
    codes = [">>cmn_Hans<<", ">>cmn_Hant<<", ">>yue_Hant<<", ">>fra<<", ">>pt_br<<"]
    edit_vocabulary(folder, lambda v: [v.setdefault(code, len(v)) for code in codes])
    edit_config(folder, target_lang="mul")
    return folder


@pytest.fixture
def own(tmp_path) -> Path:
    write_marian_tokenizer(tmp_path)
    return tmp_path


# --- equality with transformers -------------------------------------------------------------------------------------


@pytest.mark.reference
@pytest.mark.parametrize("name", ["shared", "separate", "multilingual"])
def test_ids_and_text_equal_transformers(name, request):
    folder = request.getfixturevalue(name)
    tokenizer, reference = load(folder), judge(folder)
    strings = odd_strings()
    assert len(strings) >= 200
    for text in strings:
        ids = tokenizer.encode(text)
        assert ids == reference(text)["input_ids"], text
        target_ids = reference(text_target=text)["input_ids"]
        for sequence in (ids, target_ids):
            expected = reference.decode(sequence, skip_special_tokens=True)
            if name == "separate" and sequence is ids:  # source ids mean other tokens on the target side
                continue
            assert tokenizer.decode(sequence) == expected, text


@pytest.mark.reference
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_encodes_as_in_transformers(shared, text):
    tokenizer, reference = _pair(shared)
    assert tokenizer.encode(text) == reference(text)["input_ids"]


@pytest.mark.reference
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(["shared", "separate"]))
def test_any_ids_decode_as_in_transformers(shared, separate, data, name):
    tokenizer, reference = _pair(shared if name == "shared" else separate)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_limits.target), max_size=12))
    assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True, use_source_tokenizer=False)


_PAIRS: dict[Path, tuple] = {}


def _pair(folder: Path):
    if folder not in _PAIRS:
        _PAIRS[folder] = load(folder), judge(folder)
    return _PAIRS[folder]


@pytest.mark.reference
def test_target_is_the_code_in_front(multilingual):
    tokenizer, reference = load(multilingual), judge(multilingual)
    for text in [*odd_strings(), ">>fra<< twice", ">>xyz<< unknown"]:
        expected = reference(">>cmn_Hans<< " + text)["input_ids"]
        for alias in ("zh", "zh-Hans", "zh-CN", "zh_CN", "zho_Hans", "cmn_Hans", "Chinese"):
            assert tokenizer.encode(text, target=alias) == expected, (alias, text)
        assert tokenizer.encode(text, target="zh_TW") == reference(">>cmn_Hant<< " + text)["input_ids"]


@pytest.mark.reference
def test_the_demo_model_equals_transformers():
    from importlib.resources import files

    folder = Path(str(files("onnxmt"))) / "demo" / "checkpoint"
    from transformers import AutoTokenizer

    tokenizer, reference = load(folder), AutoTokenizer.from_pretrained(folder)
    assert tokenizer.limit == 512
    for text in odd_strings():
        ids = tokenizer.encode(text)
        assert ids == reference(text)["input_ids"], text
        labels = reference(text_target=text)["input_ids"]
        for sequence in (ids, labels):
            assert tokenizer.decode(sequence) == reference.decode(sequence, skip_special_tokens=True), text


@pytest.mark.reference
@pytest.mark.parametrize(
    "changes",
    [
        {"extra_special_tokens": ["<sep>", "<sep>>", "black cat"]},
        {"additional_special_tokens": ["<eop>", {"content": "<eod>", "__type": "AddedToken", "special": True}]},
        {"bos_token": "<s>", "mask_token": "[MASK]"},
        {"image_token": "<image>"},
        {"clean_up_tokenization_spaces": True},
        {
            "added_tokens_decoder": {
                "0": {"content": "</s>", "special": True, "lstrip": True, "rstrip": True, "normalized": False},
                "1": {"content": "<unk>", "special": True},
                "12": {"content": "black", "special": False, "lstrip": True},
                "13": {"content": "<new>", "special": True, "rstrip": True},
            }
        },
    ],
)
def test_added_tokens_equal_transformers(own, changes):
    edit_config(own, **changes)
    tokenizer, reference = load(own), judge(own)
    strings = [
        *odd_strings(),
        "a <sep>>> b <sep> c", "the black cat and a black  dog", " <eop> x<eod>y", "<s>Hello [MASK] <image>.",
        "a  </s>  b  black  c <new>  d", "Hello , world !",
    ]  # fmt: skip
    for text in strings:
        ids = tokenizer.encode(text)
        assert ids == reference(text)["input_ids"], text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True), text


@pytest.mark.reference
@pytest.mark.parametrize("older", ["special_tokens_map.json", "added_tokens.json", "tokenizer.json"])
def test_older_special_token_files_equal_transformers(own, older):
    content = {
        "special_tokens_map.json": {"eos_token": "</s>", "pad_token": {"content": "<pad>"}, "mask_token": "<m>"},
        "added_tokens.json": {"<new>": 900, "</s>": 0},
        "tokenizer.json": {"added_tokens": [{"id": 0, "content": "</s>", "special": True, "lstrip": True}]},
    }[older]
    (own / older).write_text(json.dumps(content))
    tokenizer = load(own)
    reference = judge(own)
    for text in [*odd_strings(), "a <m> b <new> c", "a  </s>  b"]:
        ids = tokenizer.encode(text)
        assert ids == reference(text)["input_ids"], text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True), text


# --- literal values -------------------------------------------------------------------------------------------------


def test_one_end_of_sequence_and_nothing_cut(shared):
    tokenizer = load(shared)
    assert tokenizer.encode("") == [0]
    assert tokenizer.encode("   ") == [0]
    for text in ("Hello", "Man", "Stop", "18.5 C\nLusaka\n\nMONDAY, 3 MARCH 2025 09:12\nSPORT\n\nMORE"):
        ids = tokenizer.encode(text)
        assert ids[-1] == 0
        assert ids.count(0) == 1
    assert len(tokenizer.encode("the machine nobody checks, " * 150)) > 600


def test_typed_special_tokens_are_the_tokens_as_in_transformers(shared):
    tokenizer = load(shared)
    pad = json.loads((shared / "vocab.json").read_text(encoding="utf-8"))["<pad>"]
    assert tokenizer.encode("</s><pad><unk>") == [0, pad, 1, 0]


def test_chinese_decodes_without_marks_or_spaces(shared):
    """Case T2: no word mark, no unknown mark, no special token, no space between two Han characters."""
    tokenizer = load(shared)
    vocabulary = json.loads((shared / "vocab.json").read_text(encoding="utf-8"))
    pieces = ["▁", "图", "书", "馆", "<unk>", "九", "点", "开", "门", "。", "</s>", "<pad>", "<pad>"]
    assert tokenizer.decode([vocabulary[piece] for piece in pieces]) == "图书馆九点开门。"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([0, 1]) == ""


@pytest.mark.reference
def test_bytes_of_the_target_model_become_characters(own):
    """transformers joins shared vocabularies with source.spm, which does not know the target's byte pieces (case T2)."""
    import sentencepiece

    (own / "text").write_text("敏捷的棕色狐狸\n跳过懒狗\n" * 20, encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(own / "text"), model_prefix=str(own / "target"), vocab_size=300, hard_vocab_limit=False,
        byte_fallback=True, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2,
    )  # fmt: skip
    shutil.move(own / "target.model", own / "target.spm")
    edit_vocabulary(own, lambda v: [v.setdefault(f"<0x{b:02X}>", len(v)) for b in "你".encode()])
    tokenizer = load(own)
    vocabulary = json.loads((own / "vocab.json").read_text(encoding="utf-8"))
    ids = [vocabulary[f"<0x{b:02X}>"] for b in "你".encode()]
    assert tokenizer.decode(ids) == "你" == judge(own).decode(ids, use_source_tokenizer=False)
    assert judge(own).decode(ids) == "<0xE4><0xBD><0xA0>"


# --- languages ------------------------------------------------------------------------------------------------------


def test_only_a_leading_code_is_a_code(multilingual):
    tokenizer = load(multilingual)
    code = json.loads((multilingual / "vocab.json").read_text(encoding="utf-8"))[">>fra<<"]
    assert tokenizer.encode(">>fra<< Yes.") == [code, *tokenizer.encode("Yes.")]
    assert tokenizer.encode(">>fra<<") == [code, 0]
    assert tokenizer.encode(">>fra<< >>fra<< Yes.").count(code) == 1
    assert code not in tokenizer.encode("Yes. >>fra<<")
    assert code not in tokenizer.encode(" >>fra<< Yes.")


def test_an_unknown_leading_code_names_the_codes_there_are(multilingual, own):
    with pytest.raises(UnknownLanguageError, match=r"'>>deu<<'.*'cmn_Hans'.*put a space in front"):
        load(multilingual).encode(">>deu<< Yes.")
    edit_vocabulary(own, lambda v: v.update({"unused": v.pop(">>zho<<")}))
    with pytest.raises(UnknownLanguageError, match=r"'>>zho<<', which this model does not have \(it has none\)"):
        load(own).encode(">>zho<< Yes.")


def test_target_language_aliases(multilingual):
    tokenizer = load(multilingual)
    vocabulary = json.loads((multilingual / "vocab.json").read_text(encoding="utf-8"))
    expected = {
        "zh": ">>cmn_Hans<<", "cmn_Hans": ">>cmn_Hans<<", "zh-Hant": ">>cmn_Hant<<", "zh_TW": ">>cmn_Hant<<",
        "zho_Hant": ">>cmn_Hant<<", "yue": ">>yue_Hant<<", "Cantonese": ">>yue_Hant<<", "fr": ">>fra<<", "FRA": ">>fra<<",
        "fra_Latn": ">>fra<<", "pt-BR": ">>pt_br<<", "por": ">>pt_br<<", "zho": ">>zho<<",
    }  # fmt: skip
    for alias, code in expected.items():
        assert tokenizer.encode("Yes.", target=alias)[0] == vocabulary[code], alias
        assert tokenizer.encode("Yes.", target=alias)[1:] == tokenizer.encode("Yes."), alias
    with pytest.raises(UnknownLanguageError, match=r"target language 'deu' .*it has|nearest of its 6"):
        tokenizer.encode("Yes.", target="deu")
    assert tokenizer.languages() == LanguageCodes(
        source=("eng",), target=("cmn_Hans", "cmn_Hant", "fra", "pt_br", "yue_Hant", "zho")
    )


def test_a_model_without_codes_accepts_its_own_language_only(own):
    edit_vocabulary(own, lambda v: v.update({"unused": v.pop(">>zho<<")}))
    tokenizer = load(own)
    plain = tokenizer.encode("Yes.")
    for target in (None, "zh", "zho", "zh-CN", "cmn_Hans", "Chinese"):
        assert tokenizer.encode("Yes.", target=target) == plain
        assert tokenizer.forced_bos_token_id(target) is None
    for source in (None, "en", "eng_Latn", "English"):
        assert tokenizer.encode("Yes.", source=source) == plain
    with pytest.raises(UnknownLanguageError, match="target language 'de' is not one of this model's: it has 'zho'"):
        tokenizer.encode("Yes.", target="de")
    with pytest.raises(UnknownLanguageError, match="target language 'zh-Hant'"):
        tokenizer.encode("Yes.", target="zh-Hant")
    with pytest.raises(UnknownLanguageError, match="source language 'fr' is not one of this model's: it has 'eng'"):
        tokenizer.encode("Yes.", source="fr")
    assert tokenizer.languages() == LanguageCodes(source=("eng",), target=("zho",))


def test_a_model_that_does_not_say_its_language_takes_none(own):
    edit_vocabulary(own, lambda v: v.update({"unused": v.pop(">>zho<<")}))
    edit_config(own, target_lang=None, source_lang=None)
    with pytest.raises(UnknownLanguageError, match="no choice of target language"):
        load(own).encode("Yes.", target="zh")
    assert load(own).languages() == LanguageCodes(source=(), target=())


def test_a_group_of_source_languages_takes_any_source(own):
    edit_config(own, source_lang="roa")
    tokenizer = load(own)
    assert tokenizer.encode("Yes.", source="fr") == tokenizer.encode("Yes.")


# --- state ----------------------------------------------------------------------------------------------------------


def test_threads_with_different_targets_do_not_meet(multilingual):
    tokenizer = load(multilingual)
    targets = [None, "zh", "zh-Hant", "fr", "yue"] * 200
    expected = {target: tokenizer.encode("A black cat.", target=target) for target in set(targets)}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda target: tokenizer.encode("A black cat.", target=target), targets))
    assert results == [expected[target] for target in targets]
    assert len({tuple(ids) for ids in expected.values()}) == 5


def _encode_in_child(tokenizer, text):
    return tokenizer.encode(text, target="fr"), tokenizer.decode(tokenizer.encode(text))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_survives_pickling_and_fork(multilingual, method):
    tokenizer = load(multilingual)
    here = _encode_in_child(tokenizer, "A black cat.")
    assert _encode_in_child(pickle.loads(pickle.dumps(tokenizer)), "A black cat.") == here
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(_encode_in_child, (tokenizer, "A black cat.")) == here


# --- what is refused ------------------------------------------------------------------------------------------------


def test_half_a_surrogate_pair_is_refused(shared):
    with pytest.raises(TokenizerError, match=r"character 2 is the lone surrogate U\+D83D"):
        load(shared).encode("ab\ud83d")


def test_an_id_outside_the_vocabulary_is_refused(shared):
    tokenizer = load(shared)
    last = tokenizer.vocabulary_limits.target
    with pytest.raises(TokenizerError, match=f"no token for id {last + 1} .its ids end at {last}"):
        tokenizer.decode([0, last + 1])


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json", "target_vocab.json"])
def test_a_missing_file_is_named(tmp_path, name):
    """Case T1, at export and at load."""
    write_marian_tokenizer(tmp_path, separate_vocabs=True)
    spec = tokenizer_spec(tmp_path, CONFIG)
    (tmp_path / name).unlink()
    with pytest.raises(TokenizerError, match=name):
        tokenizer_spec(tmp_path, CONFIG)
    with pytest.raises(TokenizerError, match=name):
        load_tokenizer(tmp_path, spec)


def test_the_files_of_the_spec_are_enough(own, tmp_path_factory):
    """Case T1: the named files alone, elsewhere, give the same tokenizer."""
    spec = tokenizer_spec(own, CONFIG)
    assert spec.files == ("source.spm", "target.spm", "vocab.json")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in spec.files:
        shutil.copy(own / name, elsewhere)
    moved, here = load_tokenizer(elsewhere, spec), load_tokenizer(own, spec)
    for text in odd_strings():
        assert moved.encode(text) == here.encode(text)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.9, "pieces"])
@pytest.mark.parametrize("name", ["source.spm", "target.spm"])
def test_a_cut_sentencepiece_model_is_named(own, name, keep):
    content = (own / name).read_bytes()
    if keep == "pieces":  # cut exactly behind the tenth piece: still loads in sentencepiece
        position = 0
        for _ in range(10):
            position += 2 + content[position + 1]
        keep = position
    (own / name).write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    with pytest.raises(TokenizerError, match=name):
        tokenizer_spec(own, CONFIG)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ('{"</s>": 0, "<u', "not valid JSON"),
        ("[1, 2]", "holds a list"),
        ('{"</s>": 0, "<unk>": "1"}', "1 ids are not non-negative integers, such as '<unk>': '1'"),
        ('{"</s>": 0, "<unk>": true}', "not non-negative integers"),
        ('{"</s>": 0, "<unk>": 1.0}', "not non-negative integers"),
        ('{"</s>": 0, "<unk>": -1}', "not non-negative integers"),
        ('{"</s>": 0, "<unk>": 0}', "1 ids are used twice, such as 0"),
        ('{"a": 0, "<unk>": 1}', "lacks the token '</s>'"),
        ('{"a": 0, "b": 1}', "lacks the token '</s>' and '<unk>'"),
    ],
)
@pytest.mark.parametrize("name", ["vocab.json", "target_vocab.json"])
def test_a_wrong_vocabulary_is_named(tmp_path, name, content, message):
    write_marian_tokenizer(tmp_path, separate_vocabs=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=rf"/{name}.*{message}"):
        tokenizer_spec(tmp_path, CONFIG)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sp_model_kwargs": {"enable_sampling": True, "alpha": 0.1}}, "sp_model_kwargs.enable_sampling = True"),
        ({"sp_model_kwargs": {"add_bos": True}}, "sp_model_kwargs.add_bos = True"),
        ({"split_special_tokens": True}, "split_special_tokens"),
        ({"tokenizer_class": "T5Tokenizer"}, "tokenizer_class 'T5Tokenizer'"),
        ({"model_max_length": "512"}, "model_max_length is '512'"),
        ({"added_tokens_decoder": {"0": {"content": "</s>", "single_word": True}}}, "single_word"),
        ({"added_tokens_decoder": {"x": {"content": "</s>"}}}, r"id 'x', not an integer"),
        ({"eos_token": 3}, "'eos_token' holds 3"),
        ({"eos_token": "<end>"}, "lacks the token '<end>'"),
    ],
)
def test_a_setting_that_is_not_implemented_is_named(own, changes, message):
    edit_config(own, **changes)
    with pytest.raises(TokenizerError, match=message):
        tokenizer_spec(own, CONFIG)


def test_all_that_is_not_implemented_is_listed_at_once(own):
    edit_config(own, split_special_tokens=True, sp_model_kwargs={"reverse": True})
    with pytest.raises(TokenizerError, match=r"split_special_tokens, sp_model_kwargs\.reverse = True"):
        tokenizer_spec(own, CONFIG)


@pytest.mark.parametrize(("value", "limit"), [(512, 512), (None, None), (10**30, None), (1e30, None), (1024.0, 1024)])
def test_the_limit_is_model_max_length(own, value, limit):
    edit_config(own, model_max_length=value)
    assert load(own).limit == limit


def test_vocabulary_limits_are_the_largest_ids(own, separate):
    edit_vocabulary(own, lambda v: v.update({"far": 5000}))
    edit_config(own, bos_token="<s>")
    size = len(json.loads((own / "vocab.json").read_text(encoding="utf-8")))
    assert load(own).vocabulary_limits.target == 5000
    edit_vocabulary(own, lambda v: v.pop("far"))
    assert load(own).vocabulary_limits.source == size - 1  # <s> is added behind the vocabulary
    for side, name in (("source", "vocab.json"), ("target", "target_vocab.json")):
        largest = max(json.loads((separate / name).read_text(encoding="utf-8")).values())
        assert getattr(load(separate).vocabulary_limits, side) == largest


def test_a_folder_without_tokenizer_config_uses_the_usual_names(own):
    expected = load(own).encode("Yes.")
    (own / "tokenizer_config.json").unlink()
    assert load(own).encode("Yes.") == expected
    assert load(own).limit is None


# --- the spec -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("kind"), "'kind' is missing"),
        (lambda d: d.update(kind="bert"), "kind 'bert' is unknown"),
        (lambda d: d.update(more=1), "'more' is unknown"),
        (lambda d: d.update(files="vocab.json"), "'files' is not a list"),
        (lambda d: d.update(files=["../vocab.json"]), "'../vocab.json' is not a plain file name"),
        (lambda d: d.update(settings=3), "'settings' is not an object"),
        (lambda d: d["settings"].pop("eos"), "'eos' is missing"),
        (
            lambda d: d["settings"].update(limit="512", clean_up_spaces=1),
            "'limit' is '512'.*'clean_up_spaces' is 1|'clean_up_spaces' is 1.*'limit'",
        ),
        (lambda d: d["settings"].update(beam=1), "'beam' is unknown"),
        (lambda d: d["settings"]["added"][0].update(id=-1), "'id' is -1, not an integer of at least 0"),
    ],
)
def test_a_wrong_spec_is_refused(shared, change, message):
    data = json.loads(json.dumps(tokenizer_spec(shared, CONFIG).to_dict()))
    change(data)
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(shared, TokenizerSpec.from_dict(data))


def test_the_spec_survives_json(shared):
    spec = tokenizer_spec(shared, CONFIG)
    assert TokenizerSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_an_unknown_model_type_has_no_tokenizer(shared):
    with pytest.raises(TokenizerError, match="model_type 'llama'"):
        tokenizer_spec(shared, {"model_type": "llama"})


def test_the_base_install_is_enough(shared):
    """Marian needs sentencepiece alone: not transformers, not torch, not tokenizers."""
    import subprocess
    import sys

    code = (
        "import sys, pathlib; from onnxmt.runtime.tokenizer import tokenizer_spec, load_tokenizer;"
        "folder = pathlib.Path(sys.argv[1]); spec = tokenizer_spec(folder, {'model_type': 'marian'});"
        "assert load_tokenizer(folder, spec).encode('')== [0];"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'onnx', 'google.protobuf'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, str(shared)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
