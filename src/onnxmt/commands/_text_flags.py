"""The flags of `onnxmt translate` that say what is done around each sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmt.errors import UsageError

if TYPE_CHECKING:
    from onnxmt.runtime.translation import TranslateOptions
    from onnxmt.runtime.translator import Translator
    from onnxmt.text.chinese import ChineseOptions
    from onnxmt.text.layer import TextOptions

_PANEL = "Text"
CHINESE_RULES = ("full-width", "ellipsis", "quotes", "corner-quotes", "spacing")

Strict = Annotated[
    bool,
    typer.Option("--strict", help="A warning is an error: exit code 1, and which line it was.", rich_help_panel=_PANEL),
]
Overlap = Annotated[
    int,
    typer.Option(
        "--overlap",
        min=0,
        metavar="N",
        help="Show the model the N sentences before each, of the same paragraph.",
        rich_help_panel=_PANEL,
    ),
]
Unwrap = Annotated[
    bool, typer.Option("--unwrap", help="Join the lines of hard-wrapped paragraphs first.", rich_help_panel=_PANEL)
]
NormalizePunctuation = Annotated[
    bool,
    typer.Option(
        "--normalize-punctuation",
        help="The model gets plain punctuation: straight quotes, ASCII dashes and dots.",
        rich_help_panel=_PANEL,
    ),
]
Casing = Annotated[
    bool,
    typer.Option(
        "--casing/--no-casing",
        help="ALL CAPS and Title Case English goes to the model in its ordinary form.",
        rich_help_panel=_PANEL,
    ),
]
Protect = Annotated[
    list[str] | None,
    typer.Option(
        "--protect",
        metavar="PATTERN",
        help="A regular expression; what it matches comes out unchanged, as URLs and code do. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]
ChineseForm = Annotated[
    str | None,
    typer.Option(
        "--chinese-form",
        metavar="RULES",
        help=f"The form of Chinese output: rules of {', '.join(CHINESE_RULES)}, with commas between; or none.  "
        "[default: full-width,ellipsis,quotes,spacing]",
        rich_help_panel=_PANEL,
    ),
]
Traditional = Annotated[
    str | None,
    typer.Option(
        "--traditional",
        metavar="s2t|s2tw|s2twp|s2hk",
        help="Traditional characters by OpenCC: in general, Taiwan, Taiwan with its words, Hong Kong.",
        rich_help_panel=_PANEL,
    ),
]
LatinSpacing = Annotated[
    str | None,
    typer.Option(
        "--latin-spacing",
        metavar="keep|add|remove",
        help="Spaces between Han characters and Latin words or numbers.  [default: keep]",
        rich_help_panel=_PANEL,
    ),
]
EndMarks = Annotated[
    bool,
    typer.Option(
        "--end-marks/--no-end-marks",
        help="No full stop behind a heading or a menu's entry that has none.",
        rich_help_panel=_PANEL,
    ),
]
Checks = Annotated[
    bool,
    typer.Option(
        "--checks/--no-checks",
        help="Compare numbers, names, length, script and more with the source, and warn.",
        rich_help_panel=_PANEL,
    ),
]
Retry = Annotated[
    bool,
    typer.Option(
        "--retry/--no-retry",
        help="Translate a sentence with warnings once more, in parts.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True, kw_only=True)
class TextFlags:
    """What the command line says of the text layer."""

    strict: bool = False
    overlap: int = 0
    unwrap: bool = False
    normalize_punctuation: bool = False
    casing: bool = True
    protect: Sequence[str] = ()
    chinese_form: str | None = None
    traditional: str | None = None
    latin_spacing: str | None = None
    end_marks: bool = True
    checks: bool = True
    retry: bool = True

    def settings(self, *, split: bool) -> dict[str, Any]:
        """The fields of TranslateOptions. Raises UsageError for what is wrong, or without effect with --no-split."""
        if not split:
            self._refuse_all()
            return {"strict": self.strict}
        return {"strict": self.strict, "overlap": self.overlap, "unwrap": self.unwrap, "text": self._text()}

    @property
    def joins_lines(self) -> bool:
        """Whether paragraphs are needed, rather than lines."""
        return self.unwrap or self.overlap > 0

    def refuse_idle(self, options: TranslateOptions, translator: Translator) -> None:
        """Raise UsageError for flags of Chinese output where the target is another language."""
        from onnxmt.runtime.languages import is_chinese

        target = options.target or translator.target_language
        given = [flag for flag, value in self._chinese_flags().items() if value is not None]
        if given and target and not is_chinese(target):
            raise UsageError(f"{', '.join(given)} is for Chinese output, and the target language is {target}")

    def _chinese_flags(self) -> dict[str, str | None]:
        return {
            "--chinese-form": self.chinese_form,
            "--traditional": self.traditional,
            "--latin-spacing": self.latin_spacing,
        }

    def _refuse_all(self) -> None:
        given = {
            "--overlap": self.overlap,
            "--unwrap": self.unwrap,
            "--normalize-punctuation": self.normalize_punctuation,
            "--no-casing": not self.casing,
            "--protect": self.protect,
            **self._chinese_flags(),
            "--no-end-marks": not self.end_marks,
            "--no-checks": not self.checks,
            "--no-retry": not self.retry,
        }
        flags = [flag for flag, value in given.items() if value]
        if flags:
            raise UsageError(
                f"{', '.join(flags)} has no effect with --no-split, which gives the model lines as they are"
            )

    def _text(self) -> TextOptions:
        from onnxmt.text.casing import CasingOptions
        from onnxmt.text.fidelity import CheckOptions
        from onnxmt.text.layer import TextOptions
        from onnxmt.text.spans import ProtectOptions

        return TextOptions(
            casing=CasingOptions() if self.casing else None,
            protect=ProtectOptions(patterns=tuple(self.protect)),
            chinese=self._chinese(),
            checks=CheckOptions() if self.checks else None,
            normalize_punctuation=self.normalize_punctuation,
            end_marks=self.end_marks,
            retry=self.checks and self.retry,
        )

    def _chinese(self) -> ChineseOptions | None:
        from onnxmt.text.chinese import ChineseOptions, check_traditional

        rules = _rules(self.chinese_form)
        if not rules and self.traditional is None and self.latin_spacing is None:
            return None
        options = ChineseOptions(
            punctuation="full-width" in rules,
            ellipsis="ellipsis" in rules,
            quotes="corner" if "corner-quotes" in rules else "curly" if "quotes" in rules else "keep",
            han_spaces="spacing" in rules,
            latin_space=self.latin_spacing or "keep",  # type: ignore[arg-type]  # ChineseOptions checks it
            traditional=self.traditional,  # type: ignore[arg-type]
        )
        check_traditional(options)
        return options


def _rules(form: str | None) -> frozenset[str]:
    if form is None:
        return frozenset({"full-width", "ellipsis", "quotes", "spacing"})
    if form == "none":
        return frozenset()
    rules = [rule.strip() for rule in form.split(",")]
    unknown = [rule for rule in rules if rule not in CHINESE_RULES]
    if unknown:
        raise UsageError(
            f"--chinese-form {form}: {unknown[0]!r} is no rule; there are {', '.join(CHINESE_RULES)}, and none"
        )
    if {"quotes", "corner-quotes"} <= set(rules):
        raise UsageError("--chinese-form: quotes and corner-quotes exclude each other")
    return frozenset(rules)
