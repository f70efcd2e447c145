from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.added_tokens import AddedToken, AddedTokenSplitter, NumberedToken
from onnxmt.runtime.tokenizers.decoding import clean_up_spaces
from onnxmt.runtime.tokenizers.engines import unwritable_characters
from onnxmt.runtime.tokenizers.special_tokens import read_special_tokens
from onnxmt.runtime.tokenizers.spm_model import CONTROL, UNKNOWN, read_sentencepiece_model
from tests.tokenizer.families import FAIRSEQ_BPE, FAIRSEQ_UNIGRAM, T5_UNIGRAM, sentencepiece_model


def splitter(*contents: str, **flags: bool) -> AddedTokenSplitter:
    tokens = [AddedToken(content=content, **flags) for content in contents]
    return AddedTokenSplitter([NumberedToken(token=token, id=index) for index, token in enumerate(tokens)])


def parts(text: str, split: AddedTokenSplitter) -> list[str]:
    return [part if isinstance(part, str) else f"[{part.token.content}]" for part in split.split(text)]


@pytest.mark.parametrize(
    ("tokens", "flags", "text", "expected"),
    [
        (["</s>"], {}, "a</s>b", ["a", "[</s>]", "b"]),
        (["</s>"], {}, "</s></s>", ["[</s>]", "[</s>]"]),
        (["</s>"], {}, "", []),
        ([], {}, "a", ["a"]),
        (["ab", "abc"], {}, "xabcx", ["x", "[abc]", "x"]),
        (["abcd", "bc"], {}, "abcx", ["a", "[bc]", "x"]),
        (["x"], {"lstrip": True}, "a  x  b", ["a", "[x]", "  b"]),
        (["x"], {"rstrip": True}, "a  x  b", ["a  ", "[x]", "b"]),
        (["x"], {"lstrip": True, "rstrip": True}, " x  x ", ["[x]", "[x]"]),
        (["."], {}, "a.b", ["a", "[.]", "b"]),
    ],
)
def test_added_tokens_are_cut_out(tokens, flags, text, expected):
    assert parts(text, splitter(*tokens, **flags)) == expected


@pytest.mark.reference
@settings(max_examples=300, deadline=None)
@given(
    tokens=st.lists(st.text("abc<", min_size=1, max_size=4), min_size=1, max_size=4, unique=True),
    text=st.text("abc<", max_size=15),
)
def test_added_tokens_are_cut_out_as_in_transformers(tokens, text):
    from transformers.tokenization_python import Trie

    # With "<cc" and "c", transformers 5.24 loses both "c" of "<c<c", since it gives up what it was in the middle of.
    assume(not any(inner in outer for inner in tokens for outer in tokens if inner != outer))
    theirs = Trie(tokens).split(text)
    ours = [part if isinstance(part, str) else part.token.content for part in splitter(*tokens).split(text)]
    assert ours == theirs


@pytest.mark.parametrize(
    "options", [FAIRSEQ_UNIGRAM, FAIRSEQ_BPE, T5_UNIGRAM, {"byte_fallback": True, "vocab_size": 600}]
)
def test_the_protobuf_reader_says_what_sentencepiece_says(options):
    import sentencepiece

    path = sentencepiece_model(**options)
    model = read_sentencepiece_model(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert [piece.text for piece in model.pieces] == [processor.id_to_piece(i) for i in range(len(processor))]
    assert [piece.score for piece in model.pieces] == [processor.get_score(i) for i in range(len(processor))]
    assert [piece.kind == CONTROL for piece in model.pieces] == [processor.is_control(i) for i in range(len(processor))]
    assert model.unk_id == processor.unk_id()
    assert model.of_type(UNKNOWN) == (processor.id_to_piece(processor.unk_id()),)
    assert model.byte_fallback == ("byte_fallback" in options)
    assert model.model_type == (2 if options == FAIRSEQ_BPE else 1)


@pytest.mark.reference
def test_the_protobuf_reader_finds_the_character_map():
    from sentencepiece import sentencepiece_model_pb2 as proto

    path = sentencepiece_model(**T5_UNIGRAM)
    reference = proto.ModelProto.FromString(path.read_bytes())
    model = read_sentencepiece_model(path)
    assert model.charsmap == reference.normalizer_spec.precompiled_charsmap
    assert len(model.charsmap) > 1000
    assert [(p.text, p.score, p.kind) for p in model.pieces] == [(p.piece, p.score, p.type) for p in reference.pieces]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_cut_sentencepiece_model_is_accepted(data, tmp_path_factory):
    content = sentencepiece_model(**T5_UNIGRAM).read_bytes()
    path = tmp_path_factory.mktemp("cut") / "spiece.model"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(TokenizerError, match=r"spiece\.model"):
        read_sentencepiece_model(path)


@given(st.binary(max_size=200))
def test_rubbish_is_no_sentencepiece_model(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("rubbish") / "spiece.model"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"spiece\.model"):
        read_sentencepiece_model(path)


@pytest.mark.reference
@given(st.text(" .?!,'nmsvtrea", max_size=30))
def test_clean_up_is_transformers_own(text):
    from transformers import PreTrainedTokenizerBase

    assert clean_up_spaces(text) == PreTrainedTokenizerBase.clean_up_tokenization(None, text)


def test_unwritable_characters():
    assert unwritable_characters("abcab d", ["▁ab", "x"]) == "cd"
    assert unwritable_characters("", []) == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"eos_token": 3}, "'eos_token' holds 3"),
        ({"extra_special_tokens": [1]}, "'extra_special_tokens' holds 1"),
        ({"added_tokens_decoder": []}, "'added_tokens_decoder' is \\[\\]"),
        ({"added_tokens_decoder": {"1": {"special": True}}}, "added_tokens_decoder"),
    ],
)
def test_what_is_no_token_is_named(tmp_path, content, message):
    with pytest.raises(TokenizerError, match=message):
        read_special_tokens(tmp_path, content, {})


def test_a_role_that_is_missing_is_named(tmp_path):
    tokens = read_special_tokens(tmp_path, {"eos_token": None, "add_bos_token": True}, {"eos_token": "</s>"})
    assert tokens.named == {}
    with pytest.raises(TokenizerError, match="no eos_token"):
        tokens.name("eos_token")


def test_the_json_form_of_added_tokens_leaves_out_what_is_off():
    plain = AddedToken(content="x")
    assert plain.to_dict() == {"content": "x"}
    full = AddedToken(content="x", special=True, lstrip=True, rstrip=True, single_word=True, normalized=False)
    for token in (plain, full):
        assert AddedToken.from_dict(json.loads(json.dumps(token.to_dict())), where="here") == token
