"""From a folder to a Checkpoint: config, generation settings, files that are absent, and what the card says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxmt.checkpoint import read_checkpoint, read_config, read_generation
from onnxmt.errors import CheckpointError, MissingFileError
from onnxmt.hub import ResolvedModel, resolve
from tests.checkpoint.writers import marian_folder, write


def test_a_complete_folder(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus", num_beams=4)
    write(folder / "README.md", b"---\nlicense: apache-2.0\n---\n# Model\n")
    write(folder / "tf_model.h5", b"")
    checkpoint = read_checkpoint(resolve(folder))
    assert checkpoint.folder == folder
    assert checkpoint.name == "opus"
    assert checkpoint.revision is None
    assert checkpoint.config["decoder_start_token_id"] == 7
    assert checkpoint.generation == {
        "num_beams": 4, "decoder_start_token_id": 7, "pad_token_id": 7, "eos_token_id": 0,
    }  # fmt: skip
    assert checkpoint.generation_file == "config.json"
    assert [path.name for path in checkpoint.tokenizer_files] == ["source.spm", "target.spm", "vocab.json"]
    assert checkpoint.licence == "apache-2.0"
    assert checkpoint.card == folder / "README.md"
    assert checkpoint.weights.read("a").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_resolved_name_and_revision_are_kept(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path)
    resolved = ResolvedModel(folder=folder, name="org/name", revision="a" * 40, origin="hub")
    checkpoint = read_checkpoint(resolved)
    assert (checkpoint.name, checkpoint.revision, checkpoint.licence, checkpoint.card) == (
        "org/name",
        "a" * 40,
        None,
        None,
    )


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_t1_exactly_the_absent_tokenizer_file_is_named(tmp_path: Path, name: str) -> None:
    """Public report T1: behind "vocabulary missing" there was another file, and the message never said which."""
    folder = marian_folder(tmp_path / "opus")
    (folder / name).unlink()
    with pytest.raises(MissingFileError) as caught:
        read_checkpoint(resolve(folder))
    message = str(caught.value)
    assert f"the marian checkpoint {folder} is incomplete: it lacks {name}. Copy the folder again" in message
    assert not any(other in message for other in {"source.spm", "target.spm", "vocab.json", "weights"} - {name})
    assert isinstance(caught.value, FileNotFoundError)


def test_t1_config(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "opus")
    (folder / "config.json").unlink()
    with pytest.raises(MissingFileError, match=r"opus has no config\.json: it is not a checkpoint in Hugging Face"):
        read_checkpoint(resolve(folder))


def test_all_absent_files_are_named_at_once(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path)
    for name in ("source.spm", "vocab.json", "model.safetensors"):
        (folder / name).unlink()
    with pytest.raises(
        MissingFileError, match=r"it lacks source\.spm, vocab\.json; .* has no weights; expected model\.safe"
    ):
        read_checkpoint(resolve(folder))


def test_a_second_vocabulary_is_needed_when_the_tokenizer_says_so(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path)
    write(folder / "tokenizer_config.json", b'{"separate_vocabs": false}')
    assert len(read_checkpoint(resolve(folder)).tokenizer_files) == 4
    write(folder / "tokenizer_config.json", b'{"separate_vocabs": true}')
    with pytest.raises(MissingFileError, match=r"it lacks target_vocab\.json\."):
        read_checkpoint(resolve(folder))
    write(folder / "target_vocab.json", b"{}")
    assert [path.name for path in read_checkpoint(resolve(folder)).tokenizer_files] == [
        "source.spm", "target.spm", "vocab.json", "target_vocab.json", "tokenizer_config.json",
    ]  # fmt: skip


BAD_CONFIGS = {
    "line and column": (
        b'{\n  "model_type": "marian",\n  oops\n}',
        r"config\.json is not valid JSON: .* at line 3, column 3",
    ),
    "cut short": (b'{"model_type": "mar', "is not valid JSON: Unterminated string .* at line 1, column 16"),
    "empty": (b"", "is not valid JSON: Expecting value at line 1, column 1"),
    "a list": (b"[1, 2]", "holds a JSON list, where an object {…} is expected"),
    "no text": (b"\xff\xfe{}", "is not UTF-8 text: invalid start byte at byte 0"),
    "nested": (b'{"a":' * 100_000, "is not valid JSON"),
    "endless number": (b'{"a": ' + b"9" * 5000 + b"}", "is not valid JSON: Exceeds the limit"),
    "no model_type": (b"{}", r'must name a model_type, such as "marian"; found none'),
    "a number as model_type": (b'{"model_type": 3}', "found <int>"),
    "an empty model_type": (b'{"model_type": ""}', "found ''"),
}


@pytest.mark.parametrize(("data", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS.keys())
def test_bad_configs(tmp_path: Path, data: bytes, message: str) -> None:
    write(tmp_path / "config.json", data)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_config(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_cannot_be_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read: Is a directory"):
        read_config(tmp_path)
    (tmp_path / "config.json").rmdir()
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(CheckpointError, match="has 68157440 bytes, too many for the JSON file it should be"):
        read_config(tmp_path)


# Generation settings.

OPUS_2020 = {
    "_num_labels": 3, "activation_function": "swish", "add_bias_logits": False, "architectures": ["MarianMTModel"],
    "bad_words_ids": [[65000]], "bos_token_id": 0, "d_model": 512, "decoder_start_token_id": 65000,
    "decoder_vocab_size": None, "dropout": 0.1, "eos_token_id": 0, "force_bos_token_to_be_generated": False,
    "forced_eos_token_id": 0, "is_encoder_decoder": True, "max_length": 512, "max_position_embeddings": 512,
    "model_type": "marian", "num_beams": 6, "num_hidden_layers": 6, "pad_token_id": 65000, "scale_embedding": True,
    "temperature": None, "use_cache": True, "vocab_size": 65001,
}  # fmt: skip


def test_settings_of_an_old_config(tmp_path: Path) -> None:
    settings, source = read_generation(tmp_path, OPUS_2020)
    assert source == "config.json"
    assert settings == {
        "bad_words_ids": [[65000]], "bos_token_id": 0, "decoder_start_token_id": 65000, "eos_token_id": 0,
        "forced_eos_token_id": 0, "max_length": 512, "num_beams": 6, "pad_token_id": 65000, "use_cache": True,
    }  # fmt: skip


def test_the_old_name_of_a_forced_first_token(tmp_path: Path) -> None:
    config = {"bos_token_id": 5, "force_bos_token_to_be_generated": True}
    assert read_generation(tmp_path, config)[0] == {"bos_token_id": 5, "forced_bos_token_id": 5}
    assert read_generation(tmp_path, {"force_bos_token_to_be_generated": True})[0] == {}


def test_generation_config_alone_counts_where_it_exists(tmp_path: Path) -> None:
    own = {
        "num_beams": 2, "max_length": None, "transformers_version": "5.0.0", "_from_model_config": True, "house": 1,
    }  # fmt: skip
    write(tmp_path / "generation_config.json", json.dumps(own).encode())
    assert read_generation(tmp_path, OPUS_2020) == ({"num_beams": 2, "house": 1}, "generation_config.json")
    write(tmp_path / "generation_config.json", b'{"num_beams": 2,}')
    with pytest.raises(CheckpointError, match=r"generation_config\.json is not valid JSON: .* at line 1, column"):
        read_generation(tmp_path, OPUS_2020)


JUDGED: dict[str, dict[str, Any]] = {
    "opus": OPUS_2020,
    "beams and penalties": {
        "num_beams": 4, "length_penalty": 0.7, "no_repeat_ngram_size": 3, "early_stopping": True, "max_length": 200,
        "repetition_penalty": 1.3, "suppress_tokens": [5], "begin_suppress_tokens": [6], "min_length": 2,
    },
    "sampling": {"do_sample": True, "top_k": 10, "top_p": 0.9, "temperature": 0.7, "num_return_sequences": 1},
    "nested": {"decoder": {"num_beams": 3, "max_length": 30, "vocab_size": 3, "top_k": None}, "max_length": 99},
    "nested elsewhere": {"decoder": {}, "text_config": {"num_beams": 3}, "generator": {"min_length": 1}},
    "forced first": {"force_bos_token_to_be_generated": True, "bos_token_id": 3},
    "all empty": {"num_beams": None, "max_length": None},
}  # fmt: skip


@pytest.mark.reference
@pytest.mark.parametrize("name", JUDGED)
def test_settings_are_those_that_transformers_takes_out_of_a_config(tmp_path: Path, name: str) -> None:
    from transformers import GenerationConfig

    from onnxmt.checkpoint import GENERATION_FIELDS

    write(tmp_path / "config.json", json.dumps(JUDGED[name]).encode())
    judge = GenerationConfig.from_pretrained(
        tmp_path, config_file_name="config.json", _from_model_config=True
    ).to_dict()
    expected = {key: value for key, value in judge.items() if value is not None and key in GENERATION_FIELDS}
    assert read_generation(tmp_path, JUDGED[name])[0] == expected
    public = {key for key in judge if not key.startswith("_")} - {"transformers_version"}
    assert public <= set(GENERATION_FIELDS), "GenerationConfig has fields that read_generation does not know"


@pytest.mark.reference
def test_settings_of_a_loaded_legacy_model(tmp_path: Path) -> None:
    """The whole way: a folder as of 2020, whose settings are in config.json alone, loaded by from_pretrained."""
    from transformers import MarianMTModel

    from onnxmt.checkpoint import GENERATION_FIELDS
    from tests.tiny import build_marian

    folder = build_marian(tmp_path / "old", weights="legacy")
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    pad = config["pad_token_id"]
    config |= {"bad_words_ids": [[pad]], "num_beams": 6, "max_length": 512, "decoder_start_token_id": pad}
    del config["forced_eos_token_id"]  # whose default in MarianConfig is 0, and which generate() then does not have
    (folder / "config.json").write_text(json.dumps(config))
    judge = MarianMTModel.from_pretrained(folder, dtype="float32").generation_config.to_dict()
    ours = read_checkpoint(resolve(folder)).generation
    assert ours == {key: value for key, value in judge.items() if value is not None and key in GENERATION_FIELDS}
    assert (ours["num_beams"], ours["max_length"], ours["bad_words_ids"]) == (6, 512, [[pad]])
    assert "forced_eos_token_id" not in ours
