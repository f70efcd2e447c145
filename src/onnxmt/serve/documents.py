"""Documents of one request: the library reads them and puts them together, the batcher translates their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onnxmt.runtime.documents import DocumentTranslation, translate_document
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.text.formats.document import Format


class Documents:
    """The documents on their way: what is known of their texts so far.

    `translate_document` is a function of a document and of what a translator answers. It is run, until it asks for
    what is not known yet; once the batcher has translated that, for all documents of the request together, it is run
    again. Nothing waits meanwhile, and an answer is the library's to the letter.
    """

    def __init__(self, texts: Sequence[str], *, format: Format, options: TranslateOptions) -> None:  # noqa: A002 - as there
        self._texts, self._format, self._options = texts, format, options
        self.known: dict[str, Translation] = {}
        self.done: list[DocumentTranslation] = []

    def advance(self) -> list[str]:
        """Put together what can be, and return the texts to translate for the rest; none when all are `done`.

        Parsing takes its time: to be called beside the event loop. Raises what `translate_document` raises.
        """
        missing: dict[str, None] = {}
        done = []
        for text in self._texts:
            try:
                done.append(translate_document(self, text, format=self._format, options=self._options))
            except _NotKnownError as asked:
                missing |= dict.fromkeys(asked.texts)
        if not missing:
            self.done = done
        return list(missing)

    def answered(self, texts: Sequence[str], translations: Sequence[Translation]) -> None:
        """Take the translations of the texts that were missing."""
        self.known |= zip(texts, translations, strict=True)

    def translations(self, document: DocumentTranslation) -> list[Translation]:
        """The translations that a document is made of, unit by unit."""
        return [self.known[unit.source] for unit in document.units if unit.source in self.known]

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        options: TranslateOptions | None = None,  # noqa: ARG002 - the batcher has them
        errors: Any = "raise",  # noqa: ARG002
    ) -> Iterator[Translation]:
        """Answer as a Translator does, from what is known."""
        wanted = list(texts)
        missing = [text for text in wanted if text not in self.known]
        if missing:
            raise _NotKnownError(missing)
        return iter([self.known[text] for text in wanted])


class _NotKnownError(Exception):
    """These texts must be translated first; never leaves this file."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        super().__init__(f"{len(self.texts)} texts are not translated yet")
