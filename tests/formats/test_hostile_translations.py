"""Translations that would break a document: they are escaped, or the unit stays and a warning says so; never silently."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.runtime.documents import translate_document
from onnxmt.text.formats.document import DocumentError
from onnxmt.text.formats.registry import read_document
from tests.formats.corpus import FORMATS, real_documents
from tests.formats.fakes import Fake, marked
from tests.formats.judges import structure

HOSTILE = (
    "# {}", "1. {}", "- {}", "> {}", "{} | {}", "**{}", "_{}_ *", "`{}", "[{}](x)", "![{}]", "<b>{}", "{} -->", "<!-- {}",
    '{}" onload="x', "{}'", "{}\n\n{}", "    {}", "\t{}", "{}\\", "{}&amp;&lt;", "00:00:01,000 --> 00:00:02,000", "7", "", " ",
    "</script>{}", "===", "---", "|{}|", "{}  ", "\\n{}\\", "\u2028{}", "\ufeff{}", "```\n{}", "&#60;p&#62;{}", "{{{}}}", "]]>{}", "~~~",
    "[x]: http://a.b {}", "<m1>{}", "</m1>{}", "`m1`{}", "\x00{}", "\x1b{}", "*", "{}\r\n{}", "{}#", "+ {}", "{}:\n", "%s {} %d",
)  # fmt: skip


def hostile(number: int, text: str) -> str:
    return HOSTILE[number % len(HOSTILE)].replace("{}", marked(text))


@pytest.mark.parametrize("name", FORMATS)
def test_structure_stays_whatever_the_translator_says(name: str) -> None:
    """Every other unit of a real document gets a hostile translation, a different one each."""
    said = 0
    for real in [real for real in real_documents(name) if len(real.document.units) < 120][:12]:
        number = 0

        def answer(text: str) -> str:
            nonlocal number
            number += 1
            return hostile(number // 2, text) if number % 2 else marked(text)

        result = translate_document(Fake(answer), real.text, format=name, document=real.options)
        assert structure(result.text, name) == structure(real.text, name), real.name
        left = {warning.unit for warning in result.warnings if warning.kind == "structure"}
        assert all(result.units[unit].text == result.units[unit].source for unit in left)
        said += len(left)
    assert said > 1  # some of these cannot be written


TEXTS = {
    "markdown": "Some words.\n\n- an item\n\n| a | b |\n|---|---|\n| one | two |\n\n# Head\n\n> A *very* good [link](u) here\n",
    "html": '<p title="a title">Some <b>words</b>.</p><!-- c --><ul><li>an item<li>two</ul><script>x</script>',
    "srt": "1\n00:00:01,000 --> 00:00:02,000\nSome words.\n\n2\n00:00:03,000 --> 00:00:04,000\n<i>More</i> words.\n",
    "po": 'msgid "Some words"\nmsgstr ""\n\n#~ msgid "old"\n#~ msgstr "alt"\n\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    "json": '{"a": "Some words", "b": ["More words", 1, null], "c": {"d": "And more"}}',
}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_structure_stays_with_any_translation(name: str, data: st.DataObject) -> None:
    """Any characters at all, also such as no encoding has."""
    text = TEXTS[name]
    document = read_document(text, name)
    signs = st.text(alphabet="ab汉 \n\t\r*_`[]()<>#|-!&;\\1.\"'{}%\ud800\x00\u2028", max_size=12)
    translations = data.draw(st.lists(signs, min_size=len(document.units), max_size=len(document.units)))
    rendered = document.render(translations)
    assert document.structure(rendered.text) == document.structure(text)
    if "\ud800" not in rendered.text and "\x00" not in rendered.text:
        assert structure(rendered.text, name) == structure(text, name)


SOUP = {
    "markdown": "ab \n*_`[]()<>#|-!&;\\1.~=+:\t",
    "html": "ab \n<>/\"'=!-&;pi#x1",
    "srt": "ab \n\r01:,->.<i/>{}\\♪",
    "po": 'msgidtr "\n#~,|\\[]0',
    "json": '{}[]:," ab\\1n',
    "text": "ab \n\r`~.",
}
PARTS = {
    "markdown": [
        "Words",
        "**",
        "\n| a | b |\n|---|---|\n| c \\| d | `e` |\n",
        "[^1]: ",
        "\n> ",
        "\n- ",
        "`x`",
        "[a](b)",
        "![a](b)",
    ],
    "html": [
        "Words",
        "<p>",
        "<b>",
        "</b>",
        "<br>",
        "&lt;",
        "<code>",
        "</code>",
        "<!--",
        "-->",
        '<img alt="a b">',
        "{% x %}",
    ],
    "srt": ["\n\n1\n", "00:00:01,000 --> 00:00:02,000\n", "Words", "- ", "<i>", "</i>"],
    "po": ['msgid "a b"\n', 'msgstr ""\n', "#, c-format\n", "\n"],
}


@pytest.mark.parametrize("name", list(SOUP))
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_text_is_read_and_comes_back(name: str, data: st.DataObject) -> None:
    pieces = st.one_of(st.text(alphabet=SOUP[name], max_size=8), st.sampled_from(PARTS.get(name, ["Some words"])))
    text = "".join(data.draw(st.lists(pieces, max_size=14)))
    try:
        document = read_document(text, name)
    except DocumentError:
        return
    assert document.render([unit.text for unit in document.units]).text == text
    rendered = document.render([marked(unit.text) for unit in document.units])
    assert document.structure(rendered.text) == document.structure(text)
