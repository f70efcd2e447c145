"""What the text layer asks of the model: texts in, candidates out, and what became of each text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxmt.runtime.decoding import BatchDecoder
from onnxmt.runtime.engine import Engine
from onnxmt.runtime.flags import warnings_of
from onnxmt.runtime.glossing import GlossaryDecoder, Question
from onnxmt.runtime.search import Hypothesis
from onnxmt.runtime.settings import GenerationSettings
from onnxmt.runtime.tokenizer import Direction
from onnxmt.runtime.translation import Alternative
from onnxmt.text.boundaries import sentence_ends
from onnxmt.text.layer import Inputs
from onnxmt.text.pair import TextWarning
from onnxmt.text.patterns import is_cjk
from onnxmt.text.segment import Segment, join_translations, split_to_limit

__all__ = ["Asker", "Encoder", "Sentence", "join_candidates"]

# A second try of a doubted sentence is in parts of about half its length: what runs on further than this is a loop, and
# a model that always loops would otherwise take its length limit once more for each sentence.
_RETRY_TOKENS = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """What is translated at once.

    ids: the tokens of `text`; None where it fits the model only with placeholders for its spans.
    code: the language code that its text began with; `leads`: this sentence is the one behind it.
    context: the sentences before it that the model is given too.
    """

    text: str
    ids: tuple[int, ...] | None
    code: str | None = None
    leads: bool = False
    context: tuple[str, ...] = ()


class Encoder:
    """Texts → token ids, told the languages of one call."""

    def __init__(self, engine: Engine, told: Direction) -> None:
        self._tokenizer, self._codes_in_text, self._told = engine.tokenizer, engine.codes_in_text, told
        self.limit = engine.limit

    def whole(self, text: str, *, own: bool) -> list[int]:
        """Ids of a text as it is; `own`: it begins with the code of its target."""
        return self._tokenizer.encode(text, source=self._told.source, target=None if own else self._told.target)

    def __call__(self, text: str, *, code: str | None = None, leads: bool = False) -> tuple[int, ...]:
        """Ids of a sentence from a text that began with `code`."""
        if leads:
            return tuple(self._tokenizer.encode(f">>{code}<< {text}", source=self._told.source, target=None))
        target = code or self._told.target
        # A code counts at the start of a text only: elsewhere it is text, which a space in front says.
        plain = target is None and self._codes_in_text and text.startswith(">>")
        return tuple(self._tokenizer.encode(f" {text}" if plain else text, source=self._told.source, target=target))

    def fits(self, text: str, *, code: str | None = None, leads: bool = False) -> bool:
        """Whether the model takes this text whole."""
        return self.limit is None or len(self(text, code=code, leads=leads)) <= self.limit


@dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    """One text of the layer as it goes to the model: in parts where it is over the limit."""

    parts: tuple[Segment, ...]
    ids: tuple[tuple[int, ...], ...]


class Asker:
    """The model as the text layer sees it, for sentences of one language pair: call it with texts.

    `once`: equal inputs of one call are decoded once, unless tokens are drawn at random. Input k of a sentence has a
    random stream of its own, by the sentence's number among all of the Translator's call, however sentences arrive.
    `terms`: what sees to it that glossary terms are in the candidates.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        *,
        encoder: Encoder,
        decoder: BatchDecoder,
        engine: Engine,
        target_language: str,
        numbers: Sequence[int],
        once: bool,
        terms: GlossaryDecoder | None = None,
    ) -> None:
        self._sentences, self._encoder, self._decoder, self._engine = sentences, encoder, decoder, engine
        self._terms = terms
        self._target_language, self._numbers = target_language, numbers
        self._once = once and not decoder.settings.do_sample
        self._asked: Counter[int] = Counter()
        self._answers: list[list[Alternative]] = []
        self._settings: list[GenerationSettings] = []
        self._doubts: dict[tuple[int, int], tuple[TextWarning, ...]] = {}

    def __call__(self, texts: Inputs) -> list[list[str]]:
        """The candidates for each text, best first; a text over the model's limit is translated in parts."""
        settings = self._limited() if texts.again else self._decoder.settings
        found = self._with_context(texts, settings)
        rest = [index for index, answer in enumerate(found) if answer is None]
        answers = self._decoded([self._question(texts[i], texts.owners[i]) for i in rest], rest, texts, settings)
        for index, answer in zip(rest, answers, strict=True):
            found[index] = answer
        complete = [answer for answer in found if answer is not None]
        self._asked.update(texts.owners)
        self._answers += complete
        self._settings += [settings] * len(complete)
        return [[candidate.text for candidate in answer] for answer in complete]

    def answers(self, number: int) -> list[Alternative]:
        """All candidates of an input, best first."""
        return self._answers[number]

    def chosen(self, inputs: Sequence[int], ranks: Sequence[int]) -> list[Alternative]:
        """The candidates of these inputs, counted over all calls."""
        return [self._answers[number][rank] for number, rank in zip(inputs, ranks, strict=True)]

    def doubts(self, number: int, rank: int) -> tuple[TextWarning, ...]:
        """What the tokens of a candidate tell: the length cap, a loop."""
        if (number, rank) not in self._doubts:
            candidate = self._answers[number][rank]
            told = warnings_of(
                candidate.tokens, finished=candidate.finished, settings=self._settings[number], span=(0, 0)
            )
            self._doubts[number, rank] = tuple(
                TextWarning(kind=one.kind, span=(0, 0), message=one.message) for one in told
            )
        return self._doubts[number, rank]

    def _limited(self) -> GenerationSettings:
        settings = self._decoder.settings
        most = max(_RETRY_TOKENS, settings.length_minimum)
        if settings.length_limit <= most + 1:
            return settings
        return dataclasses.replace(settings, max_new_tokens=most)

    def _question(self, text: str, owner: int) -> _Question:
        sentence, encode = self._sentences[owner], self._encoder
        known = sentence.ids if text == sentence.text else None
        ids = known or encode(text, code=sentence.code, leads=sentence.leads)
        whole = Segment(text=text, start=0, end=len(text), separator="")
        if encode.limit is None or len(ids) <= encode.limit:
            return _Question(parts=(whole,), ids=(ids,))
        parts = split_to_limit(whole, fits=lambda part: encode.fits(part, code=sentence.code, leads=sentence.leads))
        return _Question(
            parts=parts,
            ids=tuple(encode(part.text, code=sentence.code, leads=sentence.leads) for part in parts),
        )

    def _decoded(
        self, questions: Sequence[_Question], places: Sequence[int], texts: Inputs, settings: GenerationSettings
    ) -> list[list[Alternative]]:
        """The candidates for questions, which are at `places` of `texts`."""
        sources: list[tuple[int, ...]] = []
        asked: list[Question] = []
        streams: list[int] = []
        known: dict[tuple[int, ...], int] = {}
        numbers: list[list[int]] = []
        given = self._asked.copy()
        for question, place in zip(questions, places, strict=True):
            owner = texts.owners[place]
            where = []
            for part, ids in zip(question.parts, question.ids, strict=True):
                if not self._once or ids not in known:
                    known[ids] = len(sources)
                    sources.append(ids)
                    asked.append(Question(text=part.text, ids=ids, encode=self._encode_for(owner)))
                    streams.append(self._numbers[owner] + (given[owner] << 32))
                where.append(known[ids])
                given[owner] += 1
            numbers.append(where)
        found = self._decoder.decode(sources, streams, settings=settings) if sources else []
        answers = [[self._candidate(hypothesis) for hypothesis in hypotheses] for hypotheses in found]
        if self._terms is not None:
            answers = self._terms.mended(asked, answers, settings)
        return [
            self._joined(question, [answers[number] for number in where])
            for question, where in zip(questions, numbers, strict=True)
        ]

    def _encode_for(self, owner: int) -> Callable[[str], tuple[int, ...]]:
        sentence = self._sentences[owner]
        return lambda text: self._encoder(text, code=sentence.code, leads=sentence.leads)

    def _joined(self, question: _Question, answers: Sequence[list[Alternative]]) -> list[Alternative]:
        if len(answers) == 1:
            return answers[0]
        best = [candidates[0] for candidates in answers]
        text = join_translations(
            [candidate.text for candidate in best],
            [part.separator for part in question.parts],
            target_language=self._target_language,
            sources=[part.text for part in question.parts],
        )
        return [join_candidates(text, best)]

    def _candidate(self, hypothesis: Hypothesis) -> Alternative:
        return candidate_of(hypothesis, self._engine, self._decoder.settings)

    def _with_context(self, texts: Inputs, settings: GenerationSettings) -> list[list[Alternative] | None]:
        """Candidates for the texts that could be translated behind the sentences before them; None for the others."""
        found: list[list[Alternative] | None] = [None] * len(texts)
        times = Counter(texts.owners)
        places, questions, counts = [], [], []
        for place, (text, owner) in enumerate(zip(texts, texts.owners, strict=True)):
            sentence = self._sentences[owner]
            if not sentence.context or texts.again or self._asked[owner] or times[owner] > 1:
                continue
            for first in range(len(sentence.context)):
                longer = _run_on([*sentence.context[first:], text])
                ids = self._encoder(longer, code=sentence.code, leads=sentence.leads)
                if self._encoder.limit is None or len(ids) <= self._encoder.limit:
                    whole = Segment(text=longer, start=0, end=len(longer), separator="")
                    questions.append(_Question(parts=(whole,), ids=(ids,)))
                    places.append(place)
                    counts.append(len(sentence.context) - first + 1)
                    break
        answers = self._decoded(questions, places, texts, settings)
        for place, count, candidates in zip(places, counts, answers, strict=True):
            last = [self._last_of(candidate, count) for candidate in candidates]
            found[place] = [candidate for candidate in last if candidate is not None] or None
        return found

    def _last_of(self, candidate: Alternative, count: int) -> Alternative | None:
        """The last of `count` sentences; None where the translation has another number of them."""
        text = candidate.text.strip()
        ends = sentence_ends(text, language=self._target_language) if text else []
        if len(ends) + 1 != count:
            return None
        before, tokens = text[: ends[-1]].strip(), candidate.tokens
        cut = next(
            (n for n in range(len(tokens)) if len(self._engine.tokenizer.decode(tokens[:n]).strip()) >= len(before)), 0
        )
        return dataclasses.replace(candidate, text=text[ends[-1] :].strip(), tokens=tokens[cut:])


def candidate_of(hypothesis: Hypothesis, engine: Engine, settings: GenerationSettings) -> Alternative:
    """A hypothesis as text, with its tokens without EOS."""
    tokens = hypothesis.tokens
    if tokens and tokens[-1] in settings.eos_token_ids:
        tokens = tokens[:-1]
    return Alternative(
        text=engine.tokenizer.decode(tokens), score=hypothesis.score, tokens=tokens, finished=hypothesis.finished
    )


def join_candidates(text: str, candidates: Sequence[Alternative]) -> Alternative:
    """One candidate, whose text is `text`, of several: tokens in order, the mean of the scores weighted by tokens."""
    weights = [len(candidate.tokens) + candidate.finished for candidate in candidates]
    total = sum(weights)
    weighted = sum(candidate.score * weight for candidate, weight in zip(candidates, weights, strict=True))
    return Alternative(
        text=text,
        score=candidates[0].score if len(candidates) == 1 else weighted / total if total else 0.0,
        tokens=tuple(token for candidate in candidates for token in candidate.tokens),
        finished=all(candidate.finished for candidate in candidates),
    )


def _run_on(sentences: Sequence[str]) -> str:
    text = ""
    for sentence in sentences:
        tight = not text or is_cjk(text[-1]) or is_cjk(sentence[0])
        text += sentence if tight else f" {sentence}"
    return text
