"""Measure what the text layer does to translations: BLEU (zh) and chrF2 of each part, warnings by kind, retries, time.

The figures in docs/text.md are of the demo model, greedy. REF holds the human translation of each line of SRC.

usage: python tools/text_layer_effect.py SRC REF [--model BUNDLE] [--lines N] [--beams N] [--only NAME,NAME]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from onnxmt import Translator
from onnxmt.runtime.translation import TranslateOptions, Translation
from onnxmt.text.chinese import ChineseOptions
from onnxmt.text.layer import TextOptions

_PARAGRAPH = 10  # lines that are one text where sentences are shown those before them


def variants(beams: int) -> dict[str, TranslateOptions]:
    def options(text: TextOptions | None, overlap: int = 0) -> TranslateOptions:
        return TranslateOptions(beams=beams, text=text, overlap=overlap)

    return {
        "raw": options(None),
        "the layer": options(TextOptions()),
        "without retry": options(TextOptions(retry=False)),
        "without Chinese form": options(TextOptions(chinese=None)),
        "without end marks": options(TextOptions(end_marks=False)),
        "only Chinese form": options(
            TextOptions(casing=None, protect=None, checks=None, end_marks=False, retry=False, chinese=ChineseOptions())
        ),
        "only normalized punctuation": options(
            TextOptions(
                casing=None,
                protect=None,
                chinese=None,
                checks=None,
                end_marks=False,
                retry=False,
                normalize_punctuation=True,
            )
        ),
        "overlap 1": options(TextOptions(), 1),
        "overlap 2": options(TextOptions(), 2),
    }


def translated(
    translator: Translator, lines: list[str], options: TranslateOptions
) -> tuple[list[str], list[Translation]]:
    size = _PARAGRAPH if options.overlap else 1
    texts = ["\n".join(lines[at : at + size]) for at in range(0, len(lines), size)]
    found = translator.translate_detailed(texts, options=options)
    return [line for one in found for line in one.text.split("\n")], found


def main() -> None:
    import sacrebleu

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--only")
    asked = parser.parse_args()
    lines, references = (
        path.read_text(encoding="utf-8").splitlines()[: asked.lines] for path in (asked.source, asked.reference)
    )
    print("| variant | BLEU | chrF2 | texts with warnings | of them retried in parts | CPU s |")
    print("|---|---|---|---|---|---|")
    kinds: dict[str, Counter[str]] = {}
    with Translator.load(asked.model) as translator:
        for name, options in variants(asked.beams).items():
            if asked.only and name not in asked.only.split(","):
                continue
            began = time.process_time()
            outputs, found = translated(translator, lines, options)
            seconds = time.process_time() - began
            bleu = sacrebleu.corpus_bleu(outputs, [references], tokenize="zh").score
            chrf = sacrebleu.corpus_chrf(outputs, [references]).score
            warned = sum(bool(one.warnings) for one in found)
            parts = sum(any(segment.method == "parts" for segment in one.segments) for one in found)
            kinds[name] = Counter(warning.kind for one in found for warning in one.warnings)
            print(f"| {name} | {bleu:.2f} | {chrf:.2f} | {warned} | {parts} | {seconds:.1f} |", flush=True)
    for name, counts in kinds.items():
        print(f"\n{name}: {', '.join(f'{kind} {count}' for kind, count in counts.most_common())}")


if __name__ == "__main__":
    main()
