"""`onnxmt evaluate`: BLEU, chrF and TER of a bundle, or of translations that exist."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxmt.commands._options import AsJson, Provider, bundle_place

if TYPE_CHECKING:
    from onnxmt.commands._console import Steps
    from onnxmt.measure.evaluate import Answers
    from onnxmt.measure.systems import RunOptions
    from onnxmt.measure.texts import EvaluationSet


def evaluate(
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE", help="The bundle to evaluate, or demo.  [default: demo]", callback=bundle_place
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--src", metavar="FILE", help="Texts to translate, one a line.")
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option("--ref", metavar="FILE", help="What they should become; several references: repeat it."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME",
            help="shipped, a .tsv file (DOMAIN, SOURCE, REFERENCE between tabs), or a folder with src.* and ref* "
            "files; may be repeated.  [default: shipped]",
        ),
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option("--hyp", metavar="FILE", help="Score these translations instead; no model is loaded.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE|FILE",
            help="Compare with this bundle or these translations, line by line.",
            callback=bundle_place,
        ),
    ] = None,
    beams: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Beams to search with; 1 is greedy.  [default: the bundle's]")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split/--no-split", help="Cut lines into sentences, or feed each exactly as it is.")
    ] = True,
    source_language: Annotated[
        str | None, typer.Option("--source-language", "--source", metavar="LANG", help="Language of the sources.")
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            "--target-language", "--target", metavar="LANG", help="Language of the translations: decides how BLEU cuts."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="NAME", help="One of sacrebleu's tokenizers.  [default: by the language]")
    ] = None,
    ter: Annotated[
        bool | None, typer.Option("--ter/--no-ter", help="Compute TER.  [default: where it takes seconds]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the translations to this file.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads to compute with.  [default: what affinity and quota allow]"),
    ] = None,
    provider: Provider = "cpu",
    as_json: AsJson = False,
) -> None:
    """Score translations with sacrebleu: BLEU, chrF2, TER.

    For the whole set, each domain, and each third of source length, with signatures. Chinese is cut by the tokenizer
    `zh`; --against adds a paired bootstrap and the share of equal lines. A quantised bundle is compared with the fp32
    outputs it was made beside, where it holds them for the set.

    \b
    Examples:
      onnxmt evaluate ./en-zh
      onnxmt evaluate ./en-zh-int8 --src news.en --ref news.zh --against ./en-zh --beams 4
      onnxmt evaluate --hyp system.zh --ref news.zh --json
    """
    from onnxmt.commands._console import print_json, stdout_console, step_progress
    from onnxmt.commands._sink import Sink
    from onnxmt.measure.evaluate import EvaluateOptions
    from onnxmt.measure.evaluate import evaluate as run
    from onnxmt.measure.scores import require_sacrebleu

    _refuse_mixtures(bundle=bundle, hypothesis=hypothesis, sets=sets, files=[source, *(reference or [])])
    require_sacrebleu()
    with step_progress() as progress:
        texts = _texts(source, reference or [], sets or [], source_language, target_language)
        how = _How(
            beams=beams,
            split=split,
            threads=threads,
            provider=provider,
            source=source_language,
            target=target_language,
        )
        if hypothesis is not None:
            how.refuse_without_model(against)
            texts, answers, other = _of_file(hypothesis, against, texts, how, progress)
        else:
            texts, answers, other = _of_bundle(bundle, against, texts, how, progress)
        progress.step("score")
        options = EvaluateOptions(target_language=target_language, tokenizer=tokenizer, ter=ter)
        found = run(texts, answers, against=other, options=options)
    if output is not None:
        with Sink(output) as sink:
            sink.write("".join(f"{text}\n" for text in answers.texts).encode())
    if as_json:
        print_json(found.to_dict())
    else:
        found.print_to(stdout_console())


@dataclass(frozen=True, kw_only=True)
class _How:
    """The options that only a model has a use for."""

    beams: int | None
    split: bool
    threads: int | None
    provider: str
    source: str | None
    target: str | None

    def refuse_without_model(self, against: Path | None) -> None:
        """Refuse what has no effect: an option without one is a mistake that the user should hear of."""
        from onnxmt.errors import UsageError

        if against is not None and (against / "manifest.json").is_file():
            return
        named = {
            "--beams": self.beams is not None,
            "--no-split": not self.split,
            "--threads": self.threads is not None,
            "--provider": self.provider != "cpu",
        }
        if given := [name for name, is_given in named.items() if is_given]:
            raise UsageError(f"{', '.join(given)}: of no effect with --hyp, which runs no model")

    def options(self) -> RunOptions:
        """Return them for measure.systems."""
        from onnxmt.measure.systems import RunOptions

        return RunOptions(
            beams=self.beams,
            split=self.split,
            threads=self.threads,
            provider=self.provider,
            source_language=self.source,
            target_language=self.target,
        )


def _of_file(
    hypothesis: Path, against: Path | None, texts: EvaluationSet | None, how: _How, progress: Steps
) -> tuple[EvaluationSet, Answers, Answers | None]:
    """The set, a file's translations, and those to compare with. Loads a model only to compare with one."""
    from onnxmt.measure.evaluate import answers_in
    from onnxmt.measure.texts import shipped_texts

    texts = texts or shipped_texts()
    other = None if against is None else _other(against, texts, how, progress)
    return texts, answers_in(hypothesis), other


def _of_bundle(
    bundle: Path | None, against: Path | None, texts: EvaluationSet | None, how: _How, progress: Steps
) -> tuple[EvaluationSet, Answers, Answers | None]:
    """The set as the bundle translates it, its answers, and those to compare with."""
    from onnxmt.measure.systems import answer

    progress.step("translate")
    found = answer(bundle, texts, how.options(), progress=progress.advance)
    other = found.fp32 if against is None else _other(against, found.texts, how, progress)
    return found.texts, found.answers, other


def _other(against: Path, texts: EvaluationSet, how: _How, progress: Steps) -> Answers:
    """The answers of a bundle or in a file."""
    from onnxmt.measure.evaluate import answers_in

    if not (against / "manifest.json").is_file():
        return answers_in(against)
    from onnxmt.measure.systems import answer

    progress.step("translate with the other bundle")
    return answer(against, texts, how.options(), progress=progress.advance).answers


def _texts(
    source: Path | None,
    references: list[Path],
    sets: list[str],
    source_language: str | None,
    target_language: str | None,
) -> EvaluationSet | None:
    """The set that was asked for, None where it is the model that decides."""
    from onnxmt.measure.texts import SHIPPED, joined, named_texts, read_parallel

    if source is not None or references:
        texts = read_parallel(source, references)
    elif sets and sets != [SHIPPED]:
        texts = joined([named_texts(name) for name in sets])
    else:
        return None
    return dataclasses.replace(
        texts,
        source_language=source_language or texts.source_language,
        target_language=target_language or texts.target_language,
    )


def _refuse_mixtures(
    *, bundle: Path | None, hypothesis: Path | None, sets: list[str] | None, files: list[Path | None]
) -> None:
    from onnxmt.errors import UsageError

    if bundle is not None and hypothesis is not None:
        raise UsageError("give a bundle to translate with, or translations that exist (--hyp), not both")
    if sets and any(files):
        raise UsageError("give files (--src, --ref) or a set (--set), not both")
