"""BLEU, chrF2 and TER by sacrebleu, with its signatures: the only place that imports it.

sacrebleu counts matches line by line and computes a score from the sum of the counts. Counting once and summing over
any lines gives every part of a set and every bootstrap sample, as sacrebleu's own `significance` module does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onnxmt.errors import MissingExtraError, UsageError
from onnxmt.runtime.languages import is_chinese, language_name, parse_language
from onnxmt.text.patterns import HAN

METRICS = ("bleu", "chrf", "ter")
SAMPLES = 1000
SEED = 12345
"""Samples and seed of the bootstrap: sacrebleu's defaults, so that its command line gives the same p-values."""
_ORDERS = 4
_HAN = re.compile(f"[{HAN}]")
_UNSPACED_SCRIPT = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff]"
)  # Thai … Tibetan, Burmese, Khmer, kana
# Written without spaces, and sacrebleu has no tokenizer for them (for Japanese only with MeCab installed): by 13a a
# sentence would be one word. Characters are comparable wherever they are computed.
_UNSPACED = ("jpn", "tha", "lao", "khm", "mya", "bod", "dzo")
# TER tries every shift of words, in Python: about a millisecond a character on Chinese. Beyond this many characters
# it takes minutes.
TER_CHARACTERS = 15_000

Counts = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Tokenization:
    """How texts are cut for BLEU: sacrebleu's name of the tokenizer, the language if known, and what to tell the user.

    `characters`: TER counts Chinese, Japanese and Korean characters as words.
    """

    name: str
    language: str | None
    note: str | None = None

    @property
    def characters(self) -> bool:
        """Whether single characters are the words."""
        return self.name in ("zh", "char") or self.name.startswith("ja-")


def choose_tokenization(language: str | None, samples: Sequence[str], *, tokenizer: str | None = None) -> Tokenization:
    """Choose the tokenizer of texts in `language`; where it is None, by the script of `samples`, and say so.

    `tokenizer` overrides the choice. Raises UsageError for Han text under another language's name: by the wrong
    tokenizer a Chinese sentence is one word, and equal texts score 0 (sacrebleu issues 147, 198).
    """
    script = _script(samples)
    han = script == "han"
    if language is not None and han and not tokenizer and not is_chinese(language) and not _is_japanese(language):
        name = language_name(language) or language
        raise UsageError(
            f"the target language is said to be {name}, and the texts to score are in Han characters: "
            "name the right one with --target-language, or check the files"
        )
    if tokenizer is not None:
        return Tokenization(name=tokenizer, language=language)
    if language is None:
        if han:
            return Tokenization(
                name="zh",
                language="zh",
                note="the target language is not stated; the texts are mostly Han characters and were scored as "
                "Chinese (--target-language says otherwise)",
            )
        if script == "unspaced":
            return Tokenization(
                name="char",
                language=None,
                note="the target language is not stated; the texts are in a script without spaces: BLEU counts "
                "characters (--target-language says otherwise)",
            )
        return Tokenization(
            name="13a",
            language=None,
            note="the target language is not stated: scored with sacrebleu's default tokenizer, 13a "
            "(--target-language says otherwise)",
        )
    if is_chinese(language):
        return Tokenization(name="zh", language=language)
    parsed = parse_language(language)
    if parsed is not None and parsed.base in _UNSPACED:
        name = language_name(language) or language
        return Tokenization(
            name="char", language=language, note=f"{name} is written without spaces: BLEU counts characters"
        )
    return Tokenization(name="13a", language=language)


def _script(samples: Sequence[str]) -> Literal["han", "unspaced"] | None:
    """Which script without spaces the texts are in: Han with hardly any kana, another one, or none."""
    text = "".join(samples[:500])
    letters = sum(map(str.isalpha, text))
    han, other = len(_HAN.findall(text)), len(_UNSPACED_SCRIPT.findall(text))
    if 2 * han > letters and 20 * other < han:
        return "han"
    return "unspaced" if 2 * (han + other) > letters > 0 else None


def _is_japanese(language: str) -> bool:
    parsed = parse_language(language)
    return parsed is not None and parsed.base == "jpn"


@dataclass(frozen=True, kw_only=True)
class Score:
    """The scores of some lines, 0 to 100 (TER: lower is better, and may pass 100; None where it was left out).

    `length_ratio` is hypothesis tokens over reference tokens, `orders` the n-grams that BLEU is made of: 4, or fewer
    where no line has 4 tokens.
    """

    lines: int
    bleu: float
    chrf: float
    ter: float | None
    brevity_penalty: float
    length_ratio: float
    orders: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A metric of one translation minus that of another: the value, its 95 % interval and its p-value by paired
    bootstrap resampling. `lower` and `upper` are the 2.5th and 97.5th percentile."""

    value: float
    lower: float
    upper: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Counted:
    """One translation against its references: what each metric counted, a row a line."""

    counts: Mapping[str, Counts]

    @property
    def lines(self) -> int:
        """How many lines were counted."""
        return len(self.counts["bleu"])


class Scorer:
    """sacrebleu's metrics under one tokenization. Raises MissingExtraError, and UsageError for an unknown tokenizer."""

    def __init__(self, tokenization: Tokenization, *, ter: bool) -> None:
        metrics = _sacrebleu()
        self.tokenization = tokenization
        if tokenization.name not in metrics.BLEU.TOKENIZERS:
            raise UsageError(
                f"sacrebleu has no tokenizer {tokenization.name!r}; it has {', '.join(sorted(metrics.BLEU.TOKENIZERS))}"
            )
        try:
            # force: without it sacrebleu prints a warning of three lines about texts that look tokenized.
            self._bleu = metrics.BLEU(tokenize=tokenization.name, force=True)
            self._short = metrics.BLEU(tokenize=tokenization.name, force=True, effective_order=True)
        except (ImportError, RuntimeError) as error:  # MeCab and the like, which only some of its tokenizers need
            raise UsageError(f"sacrebleu's tokenizer {tokenization.name!r} cannot be used: {error}") from error
        self._chrf = metrics.CHRF()
        self._metrics: dict[str, Any] = {"bleu": self._bleu, "chrf": self._chrf}
        if ter:
            # Without these two a Chinese sentence is one word, and TER is 100 for all but equal texts.
            asian = tokenization.characters
            self._metrics["ter"] = metrics.TER(normalized=asian, asian_support=asian)

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counted:
        """Count the matches of each line; `references` holds one sequence of lines for each reference."""
        found = {
            name: np.array(metric._extract_corpus_statistics(hypotheses, references), dtype=np.float64)
            for name, metric in self._metrics.items()
        }
        return Counted(counts=found)

    def score(self, counted: Counted, lines: Sequence[int] | None = None) -> Score:
        """Score these lines of what was counted, or all."""
        sums = {name: _chosen(counts, lines).sum(axis=0).tolist() for name, counts in counted.counts.items()}
        totals = sums["bleu"][2 + _ORDERS :]
        orders = next((n for n, total in enumerate(totals) if not total), _ORDERS)
        # BLEU is 0 where no line has 4 tokens, even for equal texts; it then counts the n-grams that there are.
        bleu = (self._bleu if orders == _ORDERS else self._short)._compute_score_from_stats(sums["bleu"])
        ter = self._metrics["ter"]._compute_score_from_stats(sums["ter"]).score if "ter" in sums else None
        return Score(
            lines=counted.lines if lines is None else len(lines),
            bleu=min(100.0, float(bleu.score)),  # sacrebleu gives equal texts 100.00000000000004
            chrf=float(self._chrf._compute_score_from_stats(sums["chrf"]).score),
            ter=None if ter is None else float(ter),
            brevity_penalty=float(bleu.bp),
            length_ratio=float(bleu.ratio),
            orders=orders,
        )

    def line_chrf(self, counted: Counted) -> list[float]:
        """Return the chrF2 of each line alone."""
        return [float(self._chrf._compute_score_from_stats(row.tolist()).score) for row in counted.counts["chrf"]]

    def differences(
        self, counted: Counted, baseline: Counted, lines: Sequence[int] | None = None
    ) -> dict[str, Difference]:
        """Return, metric by metric, how far `counted` is above `baseline` on these lines (or all).

        Koehn (2004), Statistical Significance Tests for Machine Translation Evaluation; drawn and counted as in
        sacrebleu's PairedTest, so the p-values are its own, but where all counts are equal: it gives 0.001 there.
        """
        size = counted.lines if lines is None else len(lines)
        draws = np.random.default_rng(SEED).choice(size, size=(SAMPLES, size), replace=True)
        short = self.score(counted, lines).orders < _ORDERS or self.score(baseline, lines).orders < _ORDERS
        found = {}
        for name in counted.counts:
            metric = self._short if name == "bleu" and short else self._metrics[name]
            ours_counts, theirs_counts = (
                _chosen(side.counts[name], lines).astype(np.float32) for side in (counted, baseline)
            )
            if np.array_equal(ours_counts, theirs_counts):
                found[name] = Difference(value=0.0, lower=0.0, upper=0.0, p_value=1.0)
                continue
            sides = (ours_counts, theirs_counts)
            ours, theirs = (_resampled(metric, side, draws) for side in sides)
            whole, other = (float(metric._compute_score_from_stats(side.sum(axis=0).tolist()).score) for side in sides)
            gaps = np.abs(ours - theirs)
            above = int(np.sum(gaps - gaps.mean() > abs(whole - other)))
            lower, upper = np.percentile(ours - theirs, [2.5, 97.5])
            found[name] = Difference(
                value=whole - other, lower=float(lower), upper=float(upper), p_value=(above + 1) / (SAMPLES + 1)
            )
        return found

    def signatures(self, score: Score) -> dict[str, str]:
        """Return sacrebleu's signature of each metric of `score`; it tells the number of references too."""
        metrics = dict(self._metrics)
        if score.orders < _ORDERS:
            self._short.num_refs = self._bleu.num_refs
            metrics["bleu"] = self._short
        return {name: str(metric.get_signature()) for name, metric in metrics.items()}


def _chosen(counts: Counts, lines: Sequence[int] | None) -> Counts:
    return counts if lines is None else counts[list(lines)]


def _resampled(metric: Any, counts: NDArray[np.float32], draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """The score of each sample of lines."""
    return np.array([metric._compute_score_from_stats(counts[draw].sum(axis=0)).score for draw in draws])


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise MissingExtraError(
            needed_for="scoring translations", extra="eval", module=error.name or "sacrebleu"
        ) from error
    return sacrebleu.metrics


def require_sacrebleu() -> None:
    """Raise MissingExtraError now rather than after long work."""
    _sacrebleu()
