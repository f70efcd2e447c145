"""Measure ways to apply a glossary on parallel text: python tools/glossary_table.py SOURCE.en.txt REFERENCE.zh.txt

Entries are words of the sources with the Chinese words that their references use for them (by association over the
whole text), one a sentence: half of them where the model already says so, half where it says something else. In the
second half of the table the same entries ask for names that no model would say, and the references say them too.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import sacrebleu

from onnxmt import Translator
from onnxmt.runtime import glossing, sentences
from onnxmt.runtime.flags import repeated_run
from onnxmt.runtime.search.constrained import TermCosts
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.text.chinese import to_chinese_form
from onnxmt.text.glossary import Glossary, target_pattern
from onnxmt.text.layer import TextOptions
from onnxmt.text.spans import ProtectOptions

HALF = 150
NAMES = """云舟平台|蓝鲸|GitHub|星海计划|医师|微信支付|橘猫|OpenAI|客户端|翡翠|数据湖|阿尔法|青瓷|服务器|金丝猴
旗舰店|火箭|Kubernetes 集群|Pro 版|3D 打印机""".replace("\n", "|").split("|")
COMMON = set(
    re.findall(
        r"\w+",
        """the a an is are was were be been do does did i you he she it we they to of in on at and or not what where
        when who how this that my your his her have has had there if for with as so me him them can could will
        would should may must""",
    )
)


@dataclass(frozen=True)
class Entry:
    source: str
    reference: str
    term: str
    target: str

    @property
    def glossary(self) -> Glossary:
        return Glossary.from_dict({self.term: {"target": self.target, "case": False}})


def words(text: str) -> set[str]:
    found = [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'-]*", text)]
    return {*found, *(f"{a} {b}" for a, b in itertools.pairwise(found))}


def pieces(text: str) -> set[str]:
    runs = re.findall("[一-鿿]+", text)
    return {run[i : i + n] for run in runs for n in (1, 2, 3, 4) for i in range(len(run) - n + 1)}


def candidates(sources: list[str], references: list[str]) -> Iterator[Entry]:
    """An entry for each sentence that has one, at most four for a term, in a fixed random order."""
    left, right = [words(text) for text in sources], [pieces(text) for text in references]
    counts, made = Counter(w for s in left for w in s), Counter(p for r in right for p in r)
    together = Counter(
        (w, p) for s, r in zip(left, right, strict=True) for w in s if counts[w] >= 3 for p in r if made[p] >= 3
    )
    likely: dict[str, list[tuple[float, str]]] = {}
    for (word, piece), count in together.items():
        share = 2 * count / (counts[word] + made[piece])
        if count >= 3 and share >= 0.35 and len(piece) >= 2 and len(word) >= 3 and not set(word.split()) & COMMON:
            likely.setdefault(word, []).append((share, piece))
    order = list(range(len(sources)))
    random.Random(7).shuffle(order)
    uses: Counter[str] = Counter()
    for i in order:
        options = [
            (share, word, piece)
            for word in left[i]
            for share, piece in likely.get(word, ())
            if piece in references[i]
            and not any(piece != other and piece in other and made[other] >= 0.6 * made[piece] for other in right[i])
        ]
        if options:
            _, word, piece = max(options)
            uses[word] += 1
            if uses[word] <= 4:
                yield Entry(sources[i], references[i], word, piece)


@contextmanager
def costs(value: TermCosts) -> Iterator[None]:
    with mock.patch.object(sentences, "GlossaryDecoder", functools.partial(glossing.GlossaryDecoder, costs=value)):
        yield


def none(translator: Translator, entry: Entry) -> str:
    return translator.translate(entry.source)


def n_best(translator: Translator, entry: Entry) -> str:
    found = translator.translate_detailed(entry.source, options=TranslateOptions(alternatives=3))
    texts = [found.text, *(one.text for one in found.alternatives)]
    return next((text for text in texts if target_pattern(entry.target).search(text)), texts[0])


def glossary(translator: Translator, entry: Entry) -> str:
    return translator.translate(entry.source, options=TranslateOptions(glossary=entry.glossary))


def tokens_alone(translator: Translator, entry: Entry) -> str:
    with costs(TermCosts(placing=float("inf"), least_own=float("-inf"))):
        return glossary(translator, entry)


def without_stand_ins(translator: Translator, entry: Entry) -> str:
    with mock.patch.object(glossing, "_LONGEST_STAND_IN", 0):
        return glossary(translator, entry)


def placeholders(translator: Translator, entry: Entry) -> str:
    pattern = rf"(?i)(?<![A-Za-z]){re.escape(entry.term)}(?![A-Za-z])"
    text = translator.translate(
        entry.source, options=TranslateOptions(text=TextOptions(protect=ProtectOptions(patterns=(pattern,))))
    )
    return to_chinese_form(re.sub(pattern, lambda _: entry.target, text))


METHODS: dict[str, Callable[[Translator, Entry], str]] = {
    "no glossary": none,
    "n-best of 4": n_best,
    "placeholder or split": placeholders,
    "constrained, tokens alone": tokens_alone,
    "constrained and placed": without_stand_ins,
    "constrained, placed, stand-ins": glossary,
}


def row(name: str, entries: list[Entry], outputs: list[str], seconds: float) -> str:
    references = [[entry.reference for entry in entries]]
    bleu = sacrebleu.corpus_bleu(outputs, references, tokenize="zh").score
    chrf = sacrebleu.corpus_chrf(outputs, references).score
    applied = sum(bool(target_pattern(e.target).search(o)) for e, o in zip(entries, outputs, strict=True))
    loops = sum(repeated_run([ord(c) for c in output]) > 0 for output in outputs)
    last = sum(
        output.rstrip("。.?？!！").endswith(entry.target)
        and not entry.reference.rstrip("。.?？!！").endswith(entry.target)
        for entry, output in zip(entries, outputs, strict=True)
    )
    share = 100 * applied / len(entries)
    return (
        f"| {name} | {share:.1f} % | {bleu:.1f} | {chrf:.1f} | {loops} | {last} | {1000 * seconds / len(entries):.0f} |"
    )


def main(source: str, reference: str) -> None:
    translator = Translator.load()
    found = list(
        candidates(
            Path(source).read_text(encoding="utf-8").splitlines(),
            Path(reference).read_text(encoding="utf-8").splitlines(),
        )
    )
    said = [entry.target in none(translator, entry) for entry in found[: 6 * HALF]]
    pairs = list(zip(found, said, strict=False))
    real = [e for e, has in pairs if has][:HALF] + [e for e, has in pairs if not has][:HALF]
    generator = random.Random(3)
    names = [
        replace(entry, target=name, reference=entry.reference.replace(entry.target, name))
        for entry in real
        for name in [generator.choice(NAMES)]
    ]
    for title, entries in (("words of the references", real), ("names", names)):
        print(f"\n{len(entries)} entries: {title}\n\n| | applied | BLEU | chrF | loops | at the end | ms |")
        print("|---|---|---|---|---|---|---|")
        for name, method in METHODS.items():
            began = time.perf_counter()
            outputs = [method(translator, entry) for entry in entries]
            print(row(name, entries, outputs, time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
