"""Make tests/golden/format1: a bundle of format 1 that later versions must load, and what PyTorch says it translates.

Needs the extras `export` and `reference`. Run it once a format: a golden bundle that is made anew with each version
proves nothing. It trains a model of 1 + 1 layers on the sentences below until it knows them by heart, so that its
outputs end by themselves and a wrong one is seen at a glance.

    python -m tools.make_golden_bundle
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import sentencepiece
import torch  # noqa: TID251  (a tool that asks the judge)
from transformers import MarianConfig, MarianMTModel, MarianTokenizer  # noqa: TID251

from onnxmt.bundle import BundleWriter
from onnxmt.migration import MigrateOptions, migrate

TARGET = Path(__file__).parent.parent / "tests" / "golden" / "format1"
PAIRS = {
    "The library opens at nine.": "图书馆九点开门。",
    "Please close the door.": "请把门关上。",
    "Where is the nearest station?": "最近的车站在哪里？",
    "A black cat is sleeping on the red sofa.": "一只黑猫在红色的沙发上睡觉。",
    "He bought three books yesterday.": "他昨天买了三本书。",
    "This machine makes one hundred parts an hour.": "这台机器每小时生产一百个零件。",
    "It rained.": "下雨了。",
    "We stayed in.": "我们待在家里。",
    "Thank you.": "谢谢。",
    "Yes.": "是的。",
    "The ticket costs 45 dollars.": "票价四十五元。",
    "I will bring the umbrella because it may rain.": "我会带雨伞，因为可能下雨。",
}
UNSEEN = ["The cat opens the door.", "Where is the red umbrella?", "Yes, please."]


def train_tokenizer(folder: Path) -> int:
    """Write source.spm, target.spm, vocab.json and tokenizer_config.json; return the vocabulary's size."""
    vocabulary = {"</s>": 0, "<unk>": 1}
    for side, texts, size in (("source", list(PAIRS), 110), ("target", list(PAIRS.values()), 90)):
        text = folder / f"{side}.txt"
        text.write_text("\n".join([*texts, *UNSEEN] if side == "source" else texts), encoding="utf-8")
        # Without normalisation rules a model file is 240 kB smaller.
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / side), vocab_size=size, hard_vocab_limit=False,
            character_coverage=1.0, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2, normalization_rule_name="identity",
        )  # fmt: skip
        text.unlink()
        (folder / f"{side}.vocab").unlink()
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for i in range(pieces.get_piece_size()):
            vocabulary.setdefault(pieces.id_to_piece(i), len(vocabulary))
    vocabulary["<pad>"] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    settings = {
        "tokenizer_class": "MarianTokenizer", "source_lang": "eng", "target_lang": "zho", "model_max_length": 64,
        "separate_vocabs": False, "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(vocabulary)


def train(folder: Path, tokenizer: MarianTokenizer, size: int) -> MarianMTModel:
    """Train on PAIRS until the model knows them, and save it."""
    torch.manual_seed(7)
    config = MarianConfig(
        vocab_size=size, decoder_vocab_size=size, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_position_embeddings=64, activation_function="swish", scale_embedding=True, pad_token_id=size - 1,
        eos_token_id=0, bos_token_id=0, decoder_start_token_id=size - 1, forced_eos_token_id=0, dropout=0.0,
    )  # fmt: skip
    model = MarianMTModel(config)
    batch = tokenizer(list(PAIRS), text_target=list(PAIRS.values()), return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == size - 1] = -100
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(500):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    settings = {"max_length": 40, "num_beams": 4, "bad_words_ids": [[size - 1]], "forced_eos_token_id": 0}
    for key, value in settings.items():
        setattr(model.generation_config, key, value)
    model.eval().save_pretrained(folder)
    return model


def expected(model: MarianMTModel, tokenizer: MarianTokenizer) -> list[dict[str, object]]:
    """What generate() says of each sentence, alone: tokens without start and EOS, text, and the beam score."""
    rows = []
    for sentence in [*PAIRS, *UNSEEN]:
        inputs = tokenizer([sentence], return_tensors="pt")
        row: dict[str, object] = {"source": sentence, "source_tokens": inputs["input_ids"][0].tolist()}
        for name, beams in (("greedy", 1), ("beam", 4)):
            out = model.generate(**inputs, num_beams=beams, output_scores=True, return_dict_in_generate=True)
            tokens = [t for t in out.sequences[0].tolist()[1:] if t != 0]
            row[name] = {"tokens": tokens, "text": tokenizer.decode(tokens, skip_special_tokens=True)}
            if beams > 1:
                row[name]["score"] = round(out.sequences_scores[0].item(), 6)  # type: ignore[index]
        rows.append(row)
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint, whole = Path(temporary) / "tiny-en-zh", Path(temporary) / "bundle"
        checkpoint.mkdir()
        size = train_tokenizer(checkpoint)
        tokenizer = MarianTokenizer.from_pretrained(checkpoint)
        model = train(checkpoint, tokenizer, size)
        made = migrate(checkpoint, whole, options=MigrateOptions(verify="live")).bundle
        shutil.rmtree(TARGET, ignore_errors=True)
        with BundleWriter(TARGET / "bundle") as writer:
            for entry in made.manifest.files:
                if not entry.path.startswith("verification"):  # the recording is larger than all the rest
                    shutil.copyfile(made.folder / entry.path, writer.folder / entry.path)
            bundle = writer.commit(made.manifest)
        text = json.dumps(expected(model, tokenizer), ensure_ascii=False, indent=1)
        (TARGET / "expected.json").write_text(text + "\n", encoding="utf-8")
        print(f"{bundle.folder}: {bundle.size} bytes")


if __name__ == "__main__":
    main()
