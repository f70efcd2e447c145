"""Which judge is chosen, what is refused before any work, and that a half-loaded or missing torch never judges."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

import onnxmt
from onnxmt.checkpoint import Checkpoint, read_checkpoint
from onnxmt.errors import CheckpointError, MissingExtraError, RecordingError, UsageError
from onnxmt.hub import resolve
from onnxmt.measure.recording import Recording
from onnxmt.measure.reference import TorchReference, find_reference
from onnxmt.measure.sentences import parse_sentences, verification_sentences
from tests.measure.marian import SENTENCES, Case


@pytest.fixture(scope="module")
def demo() -> Checkpoint:
    return read_checkpoint(resolve("demo"))


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name.partition(".")[0] in ("torch", "transformers") else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


@pytest.mark.reference
def test_auto_takes_torch_where_it_is_installed(demo: Checkpoint) -> None:
    assert isinstance(find_reference(demo, "auto", verification_sentences()), TorchReference)
    assert isinstance(find_reference(demo, "live", verification_sentences()), TorchReference)


def test_auto_takes_the_recording_where_torch_is_not(demo: Checkpoint, without_torch: None) -> None:
    judge = find_reference(demo, "auto", verification_sentences())
    assert isinstance(judge, Recording)
    assert judge.facts().kind == "recording"


def test_a_recording_can_be_asked_for_though_torch_is_there(demo: Checkpoint) -> None:
    assert isinstance(find_reference(demo, "recording", verification_sentences()), Recording)


def test_none_is_no_judge(demo: Checkpoint) -> None:
    assert find_reference(demo, "none", verification_sentences()) is None


def test_live_without_torch_names_the_extra(demo: Checkpoint, without_torch: None) -> None:
    with pytest.raises(MissingExtraError, match=r"onnxmt\[reference\]"):
        find_reference(demo, "live", verification_sentences())


def test_neither_torch_nor_recording_names_the_extra_and_the_way_around(
    demo: Checkpoint, without_torch: None, tmp_path: Path
) -> None:
    bare = dataclasses.replace(demo, folder=tmp_path, name="org/bare")
    with pytest.raises(MissingExtraError, match=r"onnxmt\[reference\]") as caught:
        find_reference(bare, "auto", verification_sentences())
    for part in ("org/bare", "verification.npz", "--verify none", "'torch'"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match=r"org/bare has no recorded reference: the file verification\.npz"):
        find_reference(bare, "recording", verification_sentences())


@pytest.mark.reference
def test_a_recording_of_other_weights_or_sentences_is_refused(
    demo: Checkpoint, without_torch: None, marian: Case, tmp_path: Path
) -> None:
    shutil.copy(demo.folder / "verification.npz", tmp_path)
    other = dataclasses.replace(marian.checkpoint, folder=tmp_path)
    with pytest.raises(RecordingError, match="made for other weights"):
        find_reference(other, "auto", verification_sentences())
    with pytest.raises(RecordingError, match="another sentence set"):
        find_reference(demo, "auto", SENTENCES)


def test_an_unknown_mode_is_refused(demo: Checkpoint) -> None:
    with pytest.raises(UsageError, match="'always'; allowed: auto, live, recording, none"):
        find_reference(demo, "always", verification_sentences())  # type: ignore[arg-type]


@pytest.mark.reference
@pytest.mark.parametrize("version", ["4.57.1", "5.19.0", "6.0.0"])
def test_an_unsupported_transformers_is_refused_before_work(
    demo: Checkpoint, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Case E2."""
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "transformers" else installed(name)
    )
    with pytest.raises(UsageError, match=rf"transformers {version} is installed; live verification works with 5\.20"):
        find_reference(demo, "auto", verification_sentences())


@pytest.mark.reference
def test_a_weight_that_transformers_would_make_up_is_an_error(marian: Case, tmp_path: Path) -> None:
    shutil.copytree(marian.folder, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    weights = load_file(path)
    del weights["model.decoder.layers.1.fc1.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"PyTorch cannot judge half: .*model\.decoder\.layers\.1\.fc1\.weight"):
        TorchReference(tmp_path / "model", name="half").facts()


@pytest.mark.reference
def test_what_torch_cannot_load_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="PyTorch cannot load nothing as the reference"):
        TorchReference(tmp_path, name="nothing").facts()
    with pytest.raises(CheckpointError, match="transformers cannot load the tokenizer of nothing"):
        TorchReference(tmp_path, name="nothing").tokenize(["A."])


@pytest.mark.reference
def test_the_judge_leaves_torch_and_transformers_as_they_were(marian: Case) -> None:
    import torch
    from transformers.utils import logging

    before = (
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
    )
    judge = marian.judge
    settings = judge._model.generation_config.to_dict()
    judge.judge(judge.tokenize(["Yes.", "The library opens at nine."]))
    after = (
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
    )
    assert after == before
    assert judge._model.generation_config.to_dict() == settings
    judge.close()
    assert "_model" not in vars(judge)


@pytest.mark.reference
def test_the_judge_equals_generate_itself(marian: Case) -> None:
    """Padding, the start token and what follows EOS are cut; nothing else is."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    texts = ["Yes.", "A black cat is sleeping on the red sofa."]
    judge = marian.judge
    found = judge.judge(judge.tokenize(texts))
    model = MarianMTModel.from_pretrained(marian.folder, dtype=torch.float32).eval()
    tokenizer = MarianTokenizer.from_pretrained(marian.folder)
    for text, sentence in zip(texts, found, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        assert inputs.input_ids[0].tolist() == list(sentence.source)
        for beams, tokens, said in ((1, sentence.greedy, sentence.greedy_text), (4, sentence.beam, sentence.beam_text)):
            # max_length is 40; transformers 5.0 reads it as 40 new tokens, later releases count the start token
            output = model.generate(**inputs, num_beams=beams, do_sample=False, max_new_tokens=39)[0]
            assert output.tolist() == [sentence.start_token, *tokens]
            assert tokenizer.decode(output, skip_special_tokens=True) == said
        assert sentence.steps == min(8, len(sentence.greedy))
        assert sentence.cross[0].shape == (4, len(sentence.source), 8)
        assert sentence.present[0].shape == (4, sentence.steps, 8)


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Blocked())

from pathlib import Path
from onnxmt.checkpoint import read_checkpoint
from onnxmt.hub import resolve
from onnxmt.measure.reference import find_reference
from onnxmt.measure.sentences import verification_sentences
from onnxmt.measure.verify import verify
from tests.measure.marian import candidate_of

checkpoint, candidate = candidate_of(resolve("demo").folder, Path(sys.argv[1]))
sentences = verification_sentences()
report = verify(candidate, find_reference(checkpoint, "auto", sentences), sentences)
report.raise_if_failed()
assert report.status == "recording"
assert not {"torch", "transformers"} & set(sys.modules)
print("verified", report.sentences.lines - report.sentences.skipped)
"""


def test_the_demo_is_verified_in_a_process_that_cannot_import_torch(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path / "graphs")], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "verified 66\n"


def test_only_the_reference_and_the_peers_of_a_bench_import_torch_or_transformers() -> None:
    """The reference inside functions; a peer (`engine_*.py`) runs in a process of its own and nothing imports it."""
    package = Path(onnxmt.__file__).parent
    peers = {"measure/bench/worker/engine_optimum.py", "measure/bench/worker/engine_torch.py"}
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not any(".engine_" in name for name in names), f"{path.name} imports a bench engine"
                if any(name.partition(".")[0] in ("torch", "transformers") for name in names):
                    file = path.relative_to(package).as_posix()
                    assert file == "measure/reference.py" or file in peers
                    assert node not in top or file in peers


def test_sentence_sets_other_than_the_shipped_one_are_judged_too(demo: Checkpoint) -> None:
    mine = parse_sentences("short\tMine.", name="mine.tsv")
    with pytest.raises(RecordingError, match="another sentence set"):
        find_reference(demo, "recording", mine)
