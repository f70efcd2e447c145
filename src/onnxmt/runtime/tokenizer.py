"""What every tokenizer promises, the spec that a bundle keeps of one, and the choice among the families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from onnxmt.errors import TokenizerError

__all__ = [
    "Direction",
    "LanguageCodes",
    "Tokenizer",
    "TokenizerSpec",
    "VocabularyLimits",
    "load_tokenizer",
    "tokenizer_spec",
]

_SPEC_KEYS = frozenset({"kind", "files", "settings"})
_WITH_LANGUAGE_TOKENS = ("m2m_100", "small100", "nllb", "nllb_legacy", "mbart", "mbart50")
_WITHOUT_LANGUAGE_TOKENS = ("t5", "bart", "as_it_is", "pieces")


@dataclass(frozen=True, kw_only=True)
class LanguageCodes:
    """The languages a tokenizer can be asked for, in the model's own codes; empty where the model has no choice and
    does not say which language it is."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Direction:
    """What a tokenizer is told of the languages of a call; None: nothing, and the model's own default stands."""

    source: str | None = None
    target: str | None = None


@dataclass(frozen=True, kw_only=True)
class VocabularyLimits:
    """The largest id that encoding can give (`source`: needs an encoder embedding row) and that decoding knows
    (`target`: needs a decoder row)."""

    source: int
    target: int


class Tokenizer(Protocol):
    """Text ↔ ids. No call changes the tokenizer: one may be shared by threads that ask for different languages."""

    @property
    def limit(self) -> int | None:
        """How many tokens, special ones included, the tokenizer's own settings allow; None where they do not say."""

    @property
    def vocabulary_limits(self) -> VocabularyLimits:
        """The largest ids on either side, for the check against the embeddings."""

    @property
    def needs_target(self) -> bool:
        """Whether the family is always told its target language: without one the output is in any language."""

    def languages(self) -> LanguageCodes:
        """The codes that `source` and `target` resolve to."""

    def resolve(self, *, source: str | None = None, target: str | None = None) -> Direction:
        """The model's own codes for a call; None stays None. Raises UnknownLanguageError, as `encode` would."""

    def defaults(self) -> Direction:
        """The languages that the tokenizer assumes where a call names none, as far as its settings say."""

    def written(self, *, source: str | None = None, target: str | None = None) -> str:
        """What a person would write in front of a text to say the same in transformers: a prefix, or `>>code<<`."""

    def language_of(self, token: int) -> str | None:
        """The language whose token this id is; None for any other token."""

    def encode(self, text: str, *, source: str | None = None, target: str | None = None) -> list[int]:
        """Ids of `text` with the special tokens the family wants, never truncated.

        `source` and `target` take any code or English name of a language; None is the model's default. Raises
        UnknownLanguageError for a language that the model does not have, TokenizerError for a text that is not Unicode.
        """

    def target_ids(self, text: str) -> list[int]:
        """Ids of a text of the target side, without special tokens: what the decoder would say.

        Raises TokenizerError for a text that is not Unicode.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special and language tokens skipped."""

    def unwritable(self, sample: str) -> str:
        """The characters of `sample` that the target side cannot write at all: a model that lacks Chinese, say."""

    def written_bytes(self) -> Mapping[int, bytes]:
        """What each token of the target side writes in UTF-8, a space for a word mark; no special tokens."""

    def target_tokens(self) -> frozenset[int] | str:
        """The ids that a text on the target side consists of, special tokens included.

        Or, for a person, why that is every id: source and target share all their pieces, say.
        """

    def forced_bos_token_id(self, target: str | None = None) -> int | None:
        """The id that the decoder must generate first to answer in `target`; None for a family that has no such id."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """All that is needed to load a tokenizer from its files: kept in a bundle's manifest.

    `kind` names the family, `files` the files it reads (names inside the bundle), `settings` is the family's own
    JSON-able mapping, checked by the family when it loads.
    """

    kind: str
    files: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.files:
            if not name or Path(name).name != name:
                raise TokenizerError(f"tokenizer spec: {name!r} is not a plain file name inside the bundle")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, as the manifest holds it."""
        return {"kind": self.kind, "files": list(self.files), "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenizerSpec:
        """Read the JSON form; raises TokenizerError for a missing, unknown or mistyped entry."""
        problems = [f"{key!r} is missing" for key in sorted(_SPEC_KEYS - set(data))]
        problems += [f"{key!r} is unknown" for key in sorted(set(data) - _SPEC_KEYS)]
        kind, files, settings = data.get("kind", ""), data.get("files", []), data.get("settings", {})
        if not isinstance(kind, str):
            problems.append("'kind' is not a string")
        if not isinstance(files, Sequence) or isinstance(files, str) or not all(isinstance(n, str) for n in files):
            problems.append("'files' is not a list of file names")
        if not isinstance(settings, Mapping):
            problems.append("'settings' is not an object")
        if problems:
            raise TokenizerError(f"tokenizer spec: {'; '.join(problems)}")
        return cls(kind=kind, files=tuple(files), settings=dict(settings))


def tokenizer_spec(folder: Path, config: Mapping[str, Any], *, prefix: str | None = None) -> TokenizerSpec:
    """Describe the tokenizer of the checkpoint in `folder`, whose `config.json` is `config`, and check its files.

    `prefix`: the task prefix of a T5 or BART model, instead of what its config says. Raises TokenizerError that names a
    file that is missing or wrong, and every setting that changes ids or text and is not implemented.
    """
    model_type = config.get("model_type")
    if model_type == "marian":
        from onnxmt.runtime.tokenizers.marian import marian_spec

        if prefix is not None:
            raise TokenizerError(f"a prefix ({prefix!r}) is for T5 and BART models, not for Marian")
        return marian_spec(folder)
    from onnxmt.runtime.tokenizers.family_specs import MODEL_TYPES, family_spec

    if model_type not in MODEL_TYPES:
        raise TokenizerError(
            f"no tokenizer is implemented for model_type {model_type!r}; implemented: {', '.join(MODEL_TYPES)}"
        )
    return family_spec(folder, config, prefix=prefix)


def load_tokenizer(folder: Path, spec: TokenizerSpec) -> Tokenizer:
    """Load the tokenizer that `spec` describes from the files in `folder`, and nothing else.

    Raises TokenizerError that names the file that is missing, unreadable or wrong.
    """
    if spec.kind == "marian":
        from onnxmt.runtime.tokenizers.marian import MarianTokenizer

        return MarianTokenizer.load(folder, spec)
    if spec.kind in _WITH_LANGUAGE_TOKENS:
        from onnxmt.runtime.tokenizers.coded import CodedTokenizer

        return CodedTokenizer.load(folder, spec)
    if spec.kind in _WITHOUT_LANGUAGE_TOKENS:
        from onnxmt.runtime.tokenizers.plain import PlainTokenizer

        return PlainTokenizer.load(folder, spec)
    known = ("marian", *_WITH_LANGUAGE_TOKENS, *_WITHOUT_LANGUAGE_TOKENS)
    raise TokenizerError(f"tokenizer spec: kind {spec.kind!r} is unknown; known: {', '.join(known)}")
