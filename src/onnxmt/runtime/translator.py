"""The public object: texts in, translations out, by a bundle's manifest alone."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, overload

from onnxmt.bundle import Bundle, read_bundle
from onnxmt.errors import BundleFormatError, UsageError
from onnxmt.manifest import GENERATION_CONFIG_NAME, Languages
from onnxmt.runtime.decoder import Seq2SeqModel, load_model
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.identity import model_digest
from onnxmt.runtime.languages import is_chinese
from onnxmt.runtime.memory import BatchNeeds, parse_bytes, resident_bytes
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.shortlist import Shortlist
from onnxmt.runtime.tokenizer import Direction, Tokenizer, TokenizerSpec, load_tokenizer
from onnxmt.runtime.translation import (
    TranslateOptions,
    Translation,
)
from onnxmt.runtime.translation_memory import TranslationMemory
from onnxmt.runtime.work import Errors, Work
from onnxmt.store.resolving import opened, stored_version

DEMO_MODEL = "demo"
# translate_stream reads ahead to sort by length: little at first, so that the first answer comes soon.
_FIRST_WINDOW, _LARGEST_WINDOW, _WINDOW_CHARACTERS = 4, 1024, 100_000

# What the first translations add for good, whatever their length: pages of the embedding, buffers of ONNX Runtime.
_WARM_BYTES = 30_000_000


class Translator:
    """A loaded bundle. Make one with `Translator.load`.

    One Translator may be shared by threads: no call changes it. In a forked child it makes sessions of its own at its
    first use there. Pickling keeps the folder and the options, and loads the bundle again; a translation memory stays
    behind.
    """

    def __init__(
        self,
        *,
        bundle: Bundle,
        model: Seq2SeqModel,
        tokenizer: Tokenizer,
        settings: GenerationSettings,
        runtime: RuntimeOptions,
        memory: TranslationMemory | None = None,
    ) -> None:
        self.bundle, self.runtime, self.memory = bundle, runtime, memory
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        limits = [limit for limit in (tokenizer.limit, model.positions) if limit is not None]
        self.limit: int | None = min(limits, default=None)
        languages = bundle.manifest.languages
        self.direction = Direction(source=languages.default_source, target=languages.default_target)
        self._engine = Engine(
            model=model,
            tokenizer=tokenizer,
            settings=settings,
            limit=self.limit,
            source_language=_source_language(languages),
            target_language=_target_language(languages),
            default=self.direction,
            codes_in_text=bundle.manifest.tokenizer.get("kind") == "marian",
            workers=runtime.workers,
            needs=BatchNeeds.of(
                bundle.manifest.dimensions,
                length_limit=settings.length_limit,
                scored=bundle.manifest.precision.scored,
            ),
            spare_memory=_spare_memory(runtime),
            memory=memory,
            identity="" if memory is None else model_digest(bundle.manifest),
        )

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        options: RuntimeOptions | None = None,
        check: Literal["hash", "size"] = "hash",
        memory_limit: str | int | None = None,
        memory: TranslationMemory | None = None,
    ) -> Translator:
        """Load the bundle in folder `model`; None or "demo" is the demo model that comes with onnxmt.

        NAME:VERSION and NAME:ALIAS are in the store (ONNXMT_STORE), an existing path of that name apart; what an alias
        means is settled once, here.

        Loads exactly the files that the manifest lists. `memory_limit`, such as "512Mi", is what this process may come
        to: batches are cut to fit, and it is an error when the loaded model is beyond it. `memory`: an open
        TranslationMemory; what it holds is not translated again, but for sampling. Raises ModelNotFoundError,
        BundleError, TokenizerError, GenerationSettingsError, SessionError, and UsageError for the limit.
        """
        if model is not None:  # a version that is removed while it is loaded is looked up again
            stored = opened(
                model,
                lambda folder: cls.load(folder, options=options, check=check, memory_limit=memory_limit, memory=memory),
            )
            if stored is not None:
                return stored
        bundle = _versioned(read_bundle(_folder_of(model), check=check))
        manifest, runtime = bundle.manifest, options or RuntimeOptions()
        if memory_limit is not None:
            runtime = dataclasses.replace(runtime, memory_limit=parse_bytes(memory_limit))
        return cls(
            bundle=bundle,
            tokenizer=load_tokenizer(bundle.folder, TokenizerSpec.from_dict(manifest.tokenizer)),
            settings=read_settings(bundle),
            model=load_model_of(bundle, options=runtime),
            runtime=runtime,
            memory=memory,
        )

    @property
    def threads(self) -> int:
        """Threads that compute one step."""
        return self.model.decoder.threads

    @property
    def provider(self) -> str:
        """The ONNX Runtime execution provider that is really used."""
        return self.model.decoder.provider

    @property
    def target_language(self) -> str:
        """The language of the output where a call names none, as the model says; "" where it says nothing."""
        return self.direction.target or self._engine.target_language

    def close(self) -> None:
        """Give the graphs' memory back; translating afterwards raises SessionError."""
        self.model.close()

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _reload, (self.bundle.folder, self.runtime)

    @overload
    def translate(self, text: str, *, options: TranslateOptions | None = None) -> str: ...
    @overload
    def translate(self, text: list[str] | tuple[str, ...], *, options: TranslateOptions | None = None) -> list[str]: ...
    def translate(
        self, text: str | list[str] | tuple[str, ...], *, options: TranslateOptions | None = None
    ) -> str | list[str]:
        """Translate a text, or a list of texts into a list of the same length and order.

        Raises UsageError for anything else, InputTooLongError (without `split`), TokenizerError, UnknownLanguageError,
        GenerationSettingsError, DecodingError, SessionError or, with `strict`, DoubtfulTranslationError.
        """
        unscored = dataclasses.replace(options or TranslateOptions(), scores=False)
        if isinstance(text, str):
            return self.translate_detailed(text, options=unscored).text
        return [translation.text for translation in self.translate_detailed(text, options=unscored)]

    @overload
    def translate_detailed(
        self, text: str, *, options: TranslateOptions | None = None, errors: Errors = "raise"
    ) -> Translation: ...
    @overload
    def translate_detailed(
        self, text: list[str] | tuple[str, ...], *, options: TranslateOptions | None = None, errors: Errors = "raise"
    ) -> list[Translation]: ...
    def translate_detailed(
        self,
        text: str | list[str] | tuple[str, ...],
        *,
        options: TranslateOptions | None = None,
        errors: Errors = "raise",
    ) -> Translation | list[Translation]:
        """Translate as `translate` does, with scores, tokens, segments, alternatives and warnings.

        With `errors="return"` a text that cannot be encoded (too long, unknown language code) comes back as a
        Translation whose `error` says why, and the others are translated. One that `strict` does not allow has an
        `error` too, beside its text and warnings.
        """
        texts = [text] if isinstance(text, str) else _checked_texts(text)
        work = Work(self._engine, options or TranslateOptions(), errors)
        translations = list(work.translate(texts))
        return translations[0] if isinstance(text, str) else translations

    def translate_stream(
        self, texts: Iterable[str], *, options: TranslateOptions | None = None, errors: Errors = "raise"
    ) -> Iterator[Translation]:
        """Translate any number of texts in order, each as soon as it is done, in bounded memory.

        Reads at most 1,024 texts (about 100,000 characters) ahead.
        """
        if isinstance(texts, str):
            raise UsageError("translate_stream takes texts one after another; found one text: use translate_detailed")
        return self.translate_windows(_windows(texts), options=options, errors=errors)

    def translate_windows(
        self, windows: Iterable[Sequence[str]], *, options: TranslateOptions | None = None, errors: Errors = "raise"
    ) -> Iterator[Translation]:
        """Translate texts that arrive a few at a time, in order, without waiting for the next window.

        Random draws go on from one window to the next: a seed gives the same output however the texts arrive.
        """
        work = Work(self._engine, options or TranslateOptions(), errors)  # wrong options are refused here and now
        return (translation for window in windows for translation in work.translate(_checked_texts(window)))


def _spare_memory(runtime: RuntimeOptions) -> int | None:
    """What the memory limit leaves beside all that is resident once the model is loaded."""
    if runtime.memory_limit is None:
        return None
    used = resident_bytes() + _WARM_BYTES
    if used >= runtime.memory_limit:
        raise UsageError(
            f"the memory limit is {runtime.memory_limit / 1e6:.0f} MB, and this process with the loaded model needs "
            f"{used / 1e6:.0f} MB: raise it, or load a smaller precision (onnxmt plan shows what fits)"
        )
    return runtime.memory_limit - used


def _windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Cut an endless input into windows that grow to the largest size."""
    window: list[str] = []
    size, characters = _FIRST_WINDOW, 0
    for text in texts:
        window.append(text)
        characters += len(text) if isinstance(text, str) else 0
        if len(window) >= size or characters >= _WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
            size = min(2 * size, _LARGEST_WINDOW)
    if window:
        yield window


def _checked_texts(texts: Sequence[str]) -> Sequence[str]:
    if not isinstance(texts, (list, tuple)):
        raise UsageError(f"a text or a list of texts can be translated; found {type(texts).__name__}")
    wrong = [f"item {index} is {type(text).__name__}" for index, text in enumerate(texts) if not isinstance(text, str)]
    if wrong:
        raise UsageError(f"only texts (str) can be translated: {', '.join(wrong[:5])}")
    return texts


def _source_language(codes: Languages) -> str:
    """The language by whose rules sentences end, where the caller does not say; "" where there are several."""
    return codes.source[0] if len(codes.source) == 1 else ""


def _target_language(codes: Languages) -> str:
    """The language by whose rules sentences are joined, where the caller does not say; "" where there are several."""
    chinese = [code for code in codes.target if is_chinese(code)]
    if 2 * len(chinese) > len(codes.target):  # opus-mt-en-zh names many codes for Chinese, and a few dialects
        return chinese[0]
    return codes.target[0] if len(codes.target) == 1 else ""


def _folder_of(model: str | os.PathLike[str] | None) -> Path | str:
    if model is None or (model == DEMO_MODEL and not Path(DEMO_MODEL).exists()):  # a path wins, as in hub.resolve
        return Path(__file__).parent.parent / "demo" / "bundle"
    return os.fspath(model)


def _versioned(bundle: Bundle) -> Bundle:
    """A bundle of the store knows which version it is."""
    stored = stored_version(bundle.folder)
    if stored is None:
        return bundle
    return dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, version=stored.ref))


def read_settings(bundle: Bundle) -> GenerationSettings:
    """Read a bundle's generation settings. Raises BundleFormatError, GenerationSettingsError."""
    path = bundle.path(GENERATION_CONFIG_NAME)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BundleFormatError(f"{path} is not valid JSON ({error}). Copy the bundle again") from error
    if not isinstance(values, dict):
        raise BundleFormatError(f"{path} holds {type(values).__name__}; a JSON object was expected")
    return GenerationSettings.from_dict(values)


def load_model_of(bundle: Bundle, *, options: RuntimeOptions | None = None) -> Seq2SeqModel:
    """Load the graphs that a bundle's manifest names, and its shortlist. Raises SessionError, BundleFormatError."""
    manifest = bundle.manifest
    graphs, info = manifest.graphs, manifest.precision.shortlist
    table = None
    if info is not None:
        table = Shortlist.load(bundle.folder / info.file, vocabulary=manifest.dimensions.target_vocabulary)
    return load_model(
        bundle.folder,
        encoder=graphs.encoder.file,
        decoder=graphs.decoder.file,
        head=None if graphs.head is None else graphs.head.file,
        shortlist=table,
        positions=manifest.dimensions.positions,
        options=options,
    )


def _reload(folder: Path, runtime: RuntimeOptions) -> Translator:
    return Translator.load(folder, options=runtime)
