"""The plots of a report: matplotlib figures as small SVG fragments that stand inside an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from onnxmt.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A colour that no plot uses, for whatever takes the page's own text colour, dark or light.
_INK = "#010203"
_ACCENT, _OTHER, _LIMIT = "#2f7ed8", "#8a94a6", "#d1495b"
# Inches. A phone shows the page 358 CSS pixels wide: at this width (331 points) letters are not shrunk there.
_WIDTH = 4.6
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: small, and read out where the drawing is not
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _OTHER,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A precision in a plot: its cost (MB or milliseconds), its score, and the 95 % interval of the score if known."""

    label: str
    cost: float
    score: float
    interval: tuple[float, float] | None = None
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class LayerError:
    """The largest error of a layer and what was allowed."""

    layer: str
    error: float
    limit: float | None


def require_matplotlib() -> None:
    """Raise MissingExtraError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(needed_for="the report", extra="eval", module="matplotlib") from error


def score_plot(points: Sequence[Point], *, name: str, cost: str, score: str, allowed: float | None) -> str:
    """Return `score` over `cost` as SVG; `allowed` is the lowest score that the gate lets pass."""

    def draw(axes: Axes) -> None:
        for point in points:
            color = _ACCENT if point.own else _OTHER
            if point.interval is not None:
                low, high = (abs(point.score - end) for end in point.interval)
                axes.errorbar(point.cost, point.score, yerr=[[low], [high]], color=color, capsize=3, linewidth=1.2)
            axes.plot(point.cost, point.score, "o" if point.own else "s", color=color, markersize=7)
            right = point.cost > max(p.cost for p in points) / 2
            axes.annotate(
                f"{_plain(point.label)} {point.score:.2f}", (point.cost, point.score),
                xytext=(-7 if right else 7, 5), textcoords="offset points", ha="right" if right else "left",
            )  # fmt: skip
        if allowed is not None:
            axes.axhline(allowed, color=_LIMIT, linewidth=1, linestyle="--")
            axes.annotate(
                "lowest allowed", (0, allowed), xycoords=("axes fraction", "data"), xytext=(4, -3),
                textcoords="offset points", va="top", color=_LIMIT,
            )  # fmt: skip
        axes.set_xlim(0, 1.12 * max(point.cost for point in points))
        axes.margins(y=0.3)
        axes.set_xlabel(cost)
        axes.set_ylabel(score)
        axes.grid()

    return _svg(draw, name=name, height=2.7)


def error_plot(errors: Sequence[LayerError], *, name: str) -> str:
    """Return the largest error of each layer as SVG, on a logarithmic scale, with what was allowed.

    An error of zero stands at the left edge.
    """
    require_matplotlib()
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    positive = [value for row in errors for value in (row.error, row.limit) if value]
    left = min(positive, default=1e-9) / 5
    rows = range(len(errors))

    def draw(axes: Axes) -> None:
        axes.set_xscale("log")
        # The usual formatter writes in mathematical markup, which stays as it is where text stays text.
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0e}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.hlines(rows, left, [max(row.error, left) for row in errors], color=_ACCENT, linewidth=1.4)
        axes.plot([max(row.error, left) for row in errors], rows, "o", color=_ACCENT, markersize=4.5)
        limited = [(row.limit, place) for place, row in enumerate(errors) if row.limit]
        if limited:
            values, places = zip(*limited, strict=True)
            axes.plot(values, places, "|", color=_LIMIT, markersize=9, markeredgewidth=1.6, label="allowed")
            axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0, handlelength=1)
        axes.set_xlim(left, 3 * max(positive, default=1.0))
        axes.set_yticks(list(rows), [_plain(row.layer) for row in errors])
        axes.set_ylim(len(errors) - 0.4, -0.6)
        axes.set_xlabel("largest absolute error")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")

    return _svg(draw, name=name, height=0.7 + 0.19 * len(errors))


def _svg(draw: Callable[[Axes], None], *, name: str, height: float) -> str:
    """Draw on a figure of its own and return the SVG; the same data always give the same text."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {**_SETTINGS, "svg.hashsalt": name}  # newer stubs spell every key out, older ones know str
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _fragment(file.getvalue(), name)


def _fragment(data: bytes, name: str) -> str:
    """The bare <svg> of a matplotlib file: no metadata, no namespaces, ids that are unique in a page of several."""
    root = ET.fromstring(data)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) == "metadata":
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(key): _reference(_local(key), value, name) for key, value in element.attrib.items()}
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    text = ET.tostring(root, encoding="unicode")
    # Its one rule selects every element, which inside a page means the whole page.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    return text.replace(_INK, "currentColor")


def _local(name: Any) -> str:
    return re.sub(r"^\{[^}]*\}", "", str(name))


def _reference(key: str, value: str, name: str) -> str:
    """An attribute with the plot's name in front of every id in it."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href" and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    return re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", value)


def _plain(label: str) -> str:
    """A label in printable ASCII: what the font that measures it has, and what XML may hold."""
    return "".join(character if " " <= character <= "~" else "?" for character in label[:48])
