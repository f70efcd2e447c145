"""What a document is made of beside its words, as other programs read it: none of them is used by onnxmt itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable
from typing import Any

TRANSLATABLE = {"alt", "title", "placeholder", "aria-label"}


def structure(text: str, name: str) -> Hashable:
    """The structure of a document of this format."""
    return _JUDGES[name](text)


def _markdown(text: str) -> Hashable:
    """marko (CommonMark, GitHub's extensions, footnotes): elements, nesting, code, targets; code in a line may change places."""
    import marko

    return _element(marko.Markdown(extensions=["gfm", "footnote"]).parse(text.removeprefix("\ufeff")))


def links(text: str) -> list[str]:
    """Every URL in a text."""
    return sorted(re.findall(r"https?://[^\s()<>\[\]\"'`]+[\w/]", text))


def _element(element: Any) -> Hashable:
    kind = type(element).__name__
    children = getattr(element, "children", "")
    if kind in {"FencedCode", "CodeBlock", "HTMLBlock"}:
        inside = [child.children for child in children] if isinstance(children, list) else [children]
        return kind, getattr(element, "body", ""), getattr(element, "lang", ""), "".join(map(str, inside))
    ordered: list[Hashable] = []
    code: list[str] = []
    for child in children if isinstance(children, list) else ():
        name = type(child).__name__
        if name == "CodeSpan":
            code.append(child.children)
        elif name == "InlineHTML":
            ordered.append((name, str(child.children)))
        elif name == "LineBreak":
            if not child.soft:
                ordered.append(name)
        elif name == "AutoLink":
            code.append(child.dest)
        elif name not in {"RawText", "Literal", "BlankLine", "Url"}:  # a bare URL is text: links() sees to it
            ordered.append(_element(child))
    about = [
        getattr(element, field, None) for field in ("dest", "title", "level", "ordered", "start", "align", "checked")
    ]
    if kind == "Image":
        return kind, element.dest, element.title
    return kind, tuple(map(str, about)), tuple(ordered), tuple(sorted(code))


def _html(text: str) -> Hashable:
    """html5lib, which reads as browsers do: elements, attributes, comments, and what is inside code and scripts."""
    import html5lib

    return _node(html5lib.parse(text, treebuilder="etree", namespaceHTMLElements=False))


_VERBATIM = {"script", "style", "pre", "code", "kbd", "samp", "textarea", "svg", "template"}


_CODE = {"code", "kbd", "samp", "var"}


def _node(node: Any) -> Hashable:
    if not isinstance(node.tag, str):
        return "comment", node.text
    attributes = {name: value for name, value in node.attrib.items() if name not in TRANSLATABLE}
    if node.tag == "meta":
        attributes.pop("content", None)
    if node.tag == "input":
        attributes.pop("value", None)
    inside = "".join(node.itertext()) if node.tag in _VERBATIM else ""
    children = [child for child in node if child.tag not in _CODE]
    code = sorted(_code(child) for child in node if child.tag in _CODE)  # may change places in a sentence
    return node.tag, tuple(sorted(attributes.items())), inside, tuple(map(_node, children)), tuple(code)


def _code(node: Any) -> str:
    return str((node.tag, sorted(node.attrib.items()), "".join(node.itertext())))


def _srt(text: str) -> Hashable:
    """Numbers, times and tags by the order of lines alone."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    times = [line for line in lines if "-->" in line]
    numbers = [before for before, line in zip(["", *lines], lines, strict=False) if "-->" in line]
    texts = re.split(r"(?m)^.*-->.*$", text)[1:]
    return (
        tuple(times),
        tuple(number if number.strip().isdigit() else "" for number in numbers),
        tuple(tuple(re.findall(r"</?[A-Za-z][^<>]*>|\{\\[^{}]*\}", part)) for part in texts),
        tuple(bool(re.search(r"\S", re.sub(r"(?m)^\d+\s*\Z", "", part))) for part in texts),
        text.count("\r\n") > 0,
    )


def _po(text: str) -> Hashable:
    """polib: contexts, messages, forms, comments, flags but fuzzy, obsolete entries, the header."""
    import polib

    catalogue = polib.pofile(text)
    return (
        tuple(sorted(catalogue.metadata.items())),
        tuple(
            (
                entry.msgctxt,
                entry.msgid,
                entry.msgid_plural,
                tuple(sorted(entry.msgstr_plural)),
                entry.comment,
                entry.tcomment,
                tuple(entry.occurrences),
                tuple(flag for flag in entry.flags if flag != "fuzzy"),
                entry.obsolete,
                entry.msgstr if entry.obsolete else "",
            )
            for entry in catalogue
        ),
    )


def _json(text: str) -> Hashable:
    """Keys, numbers and nesting; strings by their placeholders alone."""
    return _value(json.loads(text.removeprefix("\ufeff"), object_pairs_hook=lambda pairs: ("object", pairs)))


def _value(value: Any) -> Hashable:
    if isinstance(value, str):
        return "string", tuple(sorted(Counter(re.findall(r"\{\w*\}|%\(\w+\)s", value)).items()))
    if isinstance(value, tuple):
        return tuple((key, _value(inside)) for key, inside in value[1])
    if isinstance(value, list):
        return ("list", *map(_value, value))
    return type(value).__name__, str(value)


_JUDGES = {"markdown": _markdown, "html": _html, "srt": _srt, "po": _po, "json": _json}
