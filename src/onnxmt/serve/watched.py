"""The seam into a running call: whoever watches a thread is asked before each step of decoding, and may stop it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from onnxmt.runtime.decoder import Seq2SeqModel
from onnxmt.runtime.translator import Translator

Check = Callable[[], None]


class CallStopped(BaseException):
    """Nobody waits for this call any more; no Exception, so that nothing on the way takes it for an error."""


class Watch:
    """Which check belongs to the calls of which thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def watching(self, check: Check) -> Iterator[None]:
        """Let `check` be called before each step that this thread decodes in the block."""
        self._local.check = check
        try:
            yield
        finally:
            self._local.check = None

    def __call__(self) -> None:
        """Ask this thread's check, if it has one."""
        check: Check | None = getattr(self._local, "check", None)
        if check is not None:
            check()


def watched(translator: Translator, watch: Watch) -> Translator:
    """Return the same translator (the same sessions) whose calls ask `watch` before each step.

    Its calls decode in the thread that makes them, one batch after another, where the watch finds them.
    """
    return Translator(
        bundle=translator.bundle,
        model=cast(Seq2SeqModel, _WatchedModel(translator.model, watch)),
        tokenizer=translator.tokenizer,
        settings=translator.settings,
        runtime=dataclasses.replace(translator.runtime, workers=1),
        memory=translator.memory,
    )


class _Watched:
    """Stands for an object; each call of it or of one of its methods asks first."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._watch()
        return self._inner(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return _Watched(value, self._watch) if callable(value) else value


class _WatchedModel:
    """Stands for a Seq2SeqModel whose steps ask first."""

    def __init__(self, model: Seq2SeqModel, watch: Watch) -> None:
        self._model, self._watch = model, watch

    def start(self, *arguments: Any, **named: Any) -> Any:
        """Encode a batch, and return the step that decodes it."""
        self._watch()
        return _Watched(self._model.start(*arguments, **named), self._watch)

    def start_seeing(self, *arguments: Any, **named: Any) -> Any:
        """As `start`, for the step of constrained search."""
        self._watch()
        return _Watched(self._model.start_seeing(*arguments, **named), self._watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
