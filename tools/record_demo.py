"""Record what PyTorch says about the demo model: src/onnxmt/demo/checkpoint/verification.npz.

With it, `onnxmt migrate demo` is verified where torch is not installed. Run it again when the sentence set, the demo
weights or the recording's format change. Needs: pip install -e '.[export,reference]'
"""

from __future__ import annotations

from onnxmt.checkpoint import read_checkpoint
from onnxmt.hub import resolve
from onnxmt.measure.recorder import record
from onnxmt.measure.recording import RECORDING_NAME, checkpoint_identity
from onnxmt.measure.reference import TorchReference
from onnxmt.measure.sentences import verification_sentences


def main() -> None:
    resolved = resolve("demo")
    checkpoint = read_checkpoint(resolved)
    judge = TorchReference(resolved.folder, name=resolved.name)
    recording = record(
        judge,
        verification_sentences(),
        identity=checkpoint_identity(checkpoint.weights),
        generation=judge.generation(),
    )
    path = resolved.folder / RECORDING_NAME
    recording.save(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(recording.recorded.judged)} sentences")


if __name__ == "__main__":
    main()
