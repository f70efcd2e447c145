"""Every error that onnxmt raises on purpose. Library code raises them; the CLI and the service translate them once.

    OnnxmtError
    ├── UsageError (ValueError)                      an argument or an option is wrong
    │   ├── GlossaryError                            a glossary cannot be read, or contradicts itself
    │   └── DocumentError                            a document is not of the format that it was said to be
    ├── MissingExtraError (ImportError)              an optional dependency is not installed
    ├── ModelNotFoundError (FileNotFoundError)       MODEL names nothing that exists
    ├── DownloadError (ConnectionError)              the hub could not be reached or answered with an error
    ├── CheckpointError (ValueError)                 a checkpoint cannot be read
    │   ├── MissingFileError (FileNotFoundError)     a file that the checkpoint needs is absent
    │   ├── UnsafePickleError                        pytorch_model.bin holds something other than tensors
    │   ├── WeightsError                             names, shapes or values of weights are wrong (all listed)
    │   └── UnsupportedModelError                    an architecture or a setting that is not implemented
    ├── TokenizerError (ValueError)                  a tokenizer cannot be loaded or cannot encode
    │   ├── UnknownLanguageError                     a language code that the model does not have
    │   └── InputTooLongError                        more tokens than the model has positions
    ├── GenerationSettingsError (ValueError)         a generation setting is wrong, missing or not implemented
    ├── BundleError                                  a bundle cannot be read
    │   ├── BundleFileMissingError (FileNotFoundError)
    │   ├── BundleFileAlteredError
    │   └── BundleFormatError                        the manifest is not one that this version reads
    ├── RecordingError (ValueError)                  a recorded reference cannot be read, or belongs to something else
    ├── OutputError (OSError)                        the result cannot be written
    ├── TranslationMemoryError (OSError)             a translation memory cannot be opened, or is damaged
    ├── SessionError (RuntimeError)                  ONNX Runtime refused a graph, a provider or a run
    ├── BenchError (RuntimeError)                    an engine could not be measured
    ├── BulkError (RuntimeError)                     a bulk job could not go on; its finished shards are kept
    ├── StoreError (RuntimeError)                    the store of models cannot be read or changed as asked
    ├── DecodingError (RuntimeError)                 no token can be chosen: scores are NaN, or everything is banned
    └── LimitMissedError                             work was done and a limit was missed (exit code 1)
        ├── VerificationError                        the graphs do not equal the reference
        ├── QualityGateError                         a precision loses more quality against fp32 than is allowed
        ├── PromotionRefusedError                    a version is not good enough for the alias it was to get
        ├── DoubtfulTranslationError                 a translation has warnings, and strict allows none
        └── SizeLimitError                           a quantised model is not smaller than its fp32 one

A message names the thing, what was found, what is allowed, and the fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxmt.measure.gate_report import GateReport
    from onnxmt.runtime.translation import Translation


class OnnxmtError(Exception):
    """Base of every error that onnxmt raises on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 2


class UsageError(OnnxmtError, ValueError):
    """An argument or an option is wrong."""


class GlossaryError(UsageError):
    """A glossary cannot be read, or one of its entries is wrong or contradicts another."""


class DocumentError(UsageError):
    """A document is not what its format says; the message has the line, and the column where there is one."""


class MissingExtraError(OnnxmtError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, *, needed_for: str, extra: str, module: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_for} needs the Python package {module!r}, which is not installed. "
            f"Install it with: pip install 'onnxmt[{extra}]'"
        )


class ModelNotFoundError(OnnxmtError, FileNotFoundError):
    """MODEL names nothing that exists."""


class DownloadError(OnnxmtError, ConnectionError):
    """The hub could not be reached, or answered with an error."""


class CheckpointError(OnnxmtError, ValueError):
    """A checkpoint cannot be read."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """A file that the checkpoint needs is absent."""


class UnsafePickleError(CheckpointError):
    """A pickled weights file holds something other than tensors."""


class WeightsError(CheckpointError):
    """Weights are missing, unexpected, of the wrong shape or not finite; `problems` lists all of them."""

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(self.problems[:8])
        more = f"; and {len(self.problems) - 8} more" if len(self.problems) > 8 else ""
        noun = "problem" if len(self.problems) == 1 else "problems"
        super().__init__(f"the weights in {source} have {len(self.problems)} {noun}: {shown}{more}")


class UnsupportedModelError(CheckpointError):
    """The checkpoint's architecture, or one of its settings, is not implemented."""


class TokenizerError(OnnxmtError, ValueError):
    """A tokenizer cannot be loaded, or cannot encode a text."""


class UnknownLanguageError(TokenizerError):
    """A language code that the model does not have."""


class InputTooLongError(TokenizerError):
    """A text has more tokens than the model has positions."""

    def __init__(self, *, tokens: int, limit: int) -> None:
        self.tokens, self.limit = tokens, limit
        super().__init__(
            f"the text is {tokens} tokens long and the model takes at most {limit}: "
            "split it into sentences (the default; do not pass --no-split)"
        )


class GenerationSettingsError(OnnxmtError, ValueError):
    """A generation setting is wrong, missing or not implemented."""


class BundleError(OnnxmtError):
    """A bundle cannot be read."""


class BundleFileMissingError(BundleError, FileNotFoundError):
    """A file that the manifest lists is absent."""


class BundleFileAlteredError(BundleError):
    """A file's size or sha-256 is not the manifest's."""


class BundleFormatError(BundleError):
    """The manifest is absent, unreadable, or of a format that this version does not read."""


class RecordingError(OnnxmtError, ValueError):
    """A recorded reference cannot be read, or was made for other weights or other sentences."""


class OutputError(OnnxmtError, OSError):
    """The result cannot be written."""


class TranslationMemoryError(OnnxmtError, OSError):
    """A translation memory cannot be opened, is damaged, or is a file of something else."""


class SessionError(OnnxmtError, RuntimeError):
    """ONNX Runtime refused a graph, a provider or a run."""


class BenchError(OnnxmtError, RuntimeError):
    """An engine could not be measured as it was asked for."""


class StoreError(OnnxmtError, RuntimeError):
    """The store of models cannot be read, or not be changed as it was asked to be."""


class BulkError(OnnxmtError, RuntimeError):
    """A bulk job could not go on: no cluster, or workers that die; what is finished is kept for the next run."""


class DecodingError(OnnxmtError, RuntimeError):
    """No token can be chosen: the model's scores are not numbers, or the settings ban every token."""


class LimitMissedError(OnnxmtError):
    """The work was done and a limit was missed: verification, quality or speed."""

    exit_code = 1


class VerificationError(LimitMissedError):
    """The graphs do not equal the reference; the message names the first tensor and step that diverge."""


class QualityGateError(LimitMissedError):
    """A precision loses more quality against fp32 than is allowed; `report` (a GateReport) holds all figures.

    `report` is None where the graphs give values that are not finite, so that there is nothing to score.
    """

    def __init__(self, message: str, *, report: GateReport | None = None) -> None:
        self.report = report
        super().__init__(message)


class SpeedLimitError(LimitMissedError):
    """A bundle takes longer for a sentence than is allowed."""


class PromotionRefusedError(LimitMissedError):
    """A version failed its gate, or is worse than the one it would replace by more than the limits."""


class DoubtfulTranslationError(LimitMissedError):
    """A translation has warnings and `strict` makes them errors; `translations` are those of all texts that were given.

    A stream gives its texts in windows: then they are those of the window.
    """

    def __init__(self, message: str, *, translations: Sequence[Translation]) -> None:
        self.translations = tuple(translations)
        super().__init__(message)


class SizeLimitError(LimitMissedError):
    """A quantised model is not smaller than its fp32 one."""
