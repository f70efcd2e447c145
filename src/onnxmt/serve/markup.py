"""HTML and XML: the text between tags is translated, everything else stays byte for byte."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

# A `<` that begins none of these is text.
_TAG = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![A-Za-z][^>]*>"
    r"|<(?P<close>/?)(?P<name>[A-Za-z][^\s<>/]*)(?P<rest>(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>",
    re.DOTALL,
)
_UNTOUCHED = frozenset({"script", "style", "code", "pre", "kbd", "samp", "textarea", "svg", "math", "template"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_NO_TRANSLATION = re.compile(
    r"""\btranslate\s*=\s*["']?no\b|\bclass\s*=\s*(?:"[^"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b)""",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Markup:
    """A document cut into what stays (`fixed[i]` in front of `runs[i]`, one more at the end) and what is translated.

    `runs` are plain text: entities are resolved.
    """

    fixed: tuple[str, ...]
    runs: tuple[str, ...]

    def filled(self, translations: Sequence[str]) -> str:
        """Return the document with these texts in the places of the runs; `&`, `<` and `>` in them are escaped."""
        parts = [self.fixed[0]]
        for translation, after in zip(translations, self.fixed[1:], strict=True):
            parts += [html.escape(translation, quote=False), after]
        return "".join(parts)


def read_markup(text: str) -> Markup:
    """Cut a document at its tags, comments and untranslatable elements; broken markup is never an error."""
    fixed, runs = [""], []
    inside: list[str] = []  # the open elements from the outermost untranslatable one on
    start = 0

    def add(run: str) -> None:
        body = run.strip()
        if not body or inside or not any(c.isalpha() for c in html.unescape(body)):
            fixed[-1] += run
            return
        at = run.index(body)
        fixed[-1] += run[:at]
        runs.append(html.unescape(body))
        fixed.append(run[at + len(body) :])

    for tag in _TAG.finditer(text):
        add(text[start : tag.start()])
        fixed[-1] += tag[0]
        start = tag.end()
        name = (tag["name"] or "").lower()
        if not name or name in _VOID or (tag["rest"] or "").endswith("/"):
            continue
        if tag["close"]:
            if name in inside:
                del inside[len(inside) - 1 - inside[::-1].index(name) :]
        elif inside or name in _UNTOUCHED or _NO_TRANSLATION.search(tag["rest"]):
            inside.append(name)
    add(text[start:])
    return Markup(fixed=tuple(fixed), runs=tuple(runs))
