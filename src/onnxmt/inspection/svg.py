"""The few SVG elements that a drawing needs, with text measured well enough to wrap and to place it."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

# Mean advance of a character as a part of the font size. The widest common fonts (DejaVu, Verdana) set these: a
# narrower font leaves some room, a wider one would run over the edge of its box.
_SANS, _BOLD, _MONO, _WIDE = 0.59, 0.65, 0.605, 1.0


@dataclass(frozen=True)
class Style:
    """How a text is set; `name` is its class in the style sheet."""

    name: str
    size: float
    advance: float

    @property
    def line(self) -> float:
        """Distance between two lines."""
        return round(self.size * 1.42, 1)

    def width(self, text: str) -> float:
        """Return the width of `text`, estimated from above."""
        wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
        return self.size * (wide * _WIDE + (len(text) - wide) * self.advance)


HEADING = Style("heading", 20, _BOLD)
TITLE = Style("title", 13, _BOLD)
BODY = Style("body", 11, _SANS)
STRONG = Style("strong", 11, _BOLD)
CODE = Style("code", 10.5, _MONO)
NOTE = Style("note", 10, _SANS)

STYLE_SHEET = """
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2733; }
.heading { font-size: 20px; font-weight: 600; }
.title { font-size: 13px; font-weight: 600; }
.body { font-size: 11px; }
.strong { font-size: 11px; font-weight: 600; }
.code { font-size: 10.5px; font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.note { font-size: 10px; fill: #5b6675; }
.edge { fill: none; stroke: #5b6675; stroke-width: 1.4; }
.lane { fill: none; stroke: #8a94a6; stroke-width: 1.2; }
.bridge { fill: none; stroke: #c2456b; stroke-width: 1.8; }
.loop { fill: none; stroke: #d9822b; stroke-width: 1.4; stroke-dasharray: 5 4; }
"""


class Canvas:
    """Collects elements; `markup` closes the drawing."""

    def __init__(self) -> None:
        self._elements: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str,
        radius: float = 6,
        tip: str = "",
    ) -> None:
        """Draw a box; `tip` shows when the pointer rests on it, and is what a screen reader says."""
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        self._elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{stroke}">{inner}</rect>'
        )

    def text(self, x: float, y: float, text: str, style: Style, *, anchor: str = "start") -> None:
        """Set one line of text with its baseline at `y`."""
        at = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._elements.append(
            f'<text x="{x:g}" y="{y:g}" class="{style.name}"{at} xml:space="preserve">{escape(text)}</text>'
        )

    def spans(self, x: float, y: float, parts: Sequence[tuple[str, Style]]) -> None:
        """Set one line whose parts differ in style."""
        inner = "".join(f'<tspan class="{style.name}">{escape(text)}</tspan>' for text, style in parts)
        self._elements.append(f'<text x="{x:g}" y="{y:g}" xml:space="preserve">{inner}</text>')

    def path(self, points: Sequence[tuple[float, float]], *, kind: str = "edge", arrow: bool = True) -> None:
        """Draw a line through the points, with rounded corners; `kind` is its class."""
        end = f' marker-end="url(#{kind})"' if arrow else ""
        self._elements.append(f'<path d="{_rounded(points)}" class="{kind}"{end}/>')

    def markup(self, *, width: float, height: float, label: str) -> str:
        """Return the SVG document; `label` says what it shows."""
        markers = "".join(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0.6 L8,4 L0,7.4 z" fill="{colour}"/></marker>'
            for kind, colour in (("edge", "#5b6675"), ("lane", "#8a94a6"), ("bridge", "#c2456b"), ("loop", "#d9822b"))
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label={quoteattr(label)}>'
        )
        body = "\n".join(self._elements)
        return (
            f"{head}\n<title>{escape(label)}</title>\n<style>{STYLE_SHEET}</style>\n<defs>{markers}</defs>\n"
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
        )


def _rounded(points: Sequence[tuple[float, float]], radius: float = 7) -> str:
    """A path through the points whose corners are quarter circles, smaller where a leg is short."""
    (x, y), *rest = points
    parts = [f"M{x:g},{y:g}"]
    for index, (corner, after) in enumerate(itertools.pairwise(rest)):
        before = points[index]
        r = min(radius, _length(before, corner) / 2, _length(corner, after) / 2)
        (ax, ay), (bx, by) = _towards(corner, before, r), _towards(corner, after, r)
        parts.append(f"L{ax:g},{ay:g} Q{corner[0]:g},{corner[1]:g} {bx:g},{by:g}")
    x, y = rest[-1]
    return " ".join([*parts, f"L{x:g},{y:g}"])


def _length(a: tuple[float, float], b: tuple[float, float]) -> float:
    return float(abs(a[0] - b[0]) + abs(a[1] - b[1]))  # every leg is horizontal or vertical


def _towards(start: tuple[float, float], end: tuple[float, float], distance: float) -> tuple[float, float]:
    length = _length(start, end) or 1
    part = distance / length
    return round(start[0] + (end[0] - start[0]) * part, 1), round(start[1] + (end[1] - start[1]) * part, 1)


def wrap(words: Sequence[tuple[str, Style]], width: float) -> list[list[tuple[str, Style]]]:
    """Break words into lines no wider than `width`; a word wider than that has a line to itself."""
    lines: list[list[tuple[str, Style]]] = [[]]
    used = 0.0
    for word, style in words:
        needed = style.width(word)
        if lines[-1] and used + needed > width:
            lines.append([])
            used = 0.0
        lines[-1].append((word, style))
        used += needed
    return lines
