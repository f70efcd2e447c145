"""Hard-wrapped paragraphs become one line; everything else keeps its lines."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.text.spans import find_protected
from onnxmt.text.unwrap import unwrap_lines

LONG = "This is a line of a paragraph that somebody wrapped"
HAN = "这是有人在编辑器里按固定宽度折行的一段话，它一直写到很远很远的地方才换到下一行去，真的很长很长"


def test_a_wrapped_paragraph_becomes_one_line():
    assert unwrap_lines(f"{LONG}\n  {LONG} by hand\nand here it ends.\n\nNext.\n") == (
        f"{LONG} {LONG} by hand and here it ends.\n\nNext.\n"
    )


def test_line_ends_are_kept():
    assert unwrap_lines(f"{LONG}\r\nrest\r\n\r\nx") == f"{LONG} rest\r\n\r\nx"


def test_chinese_lines_join_without_a_space():
    assert unwrap_lines(f"{HAN}\n不过也就这样。\n") == f"{HAN}不过也就这样。\n"


def test_a_hyphen_at_the_end_joins_without_a_space():
    assert unwrap_lines(f"{LONG} well-\nknown.") == f"{LONG} well-known."


def test_short_lines_and_structure_stay():
    for text in (
        "Roses are red\nViolets are blue\n",
        f"# {LONG}\n{LONG}\n",
        f"- {LONG}\n- {LONG}\n* {LONG}\n1. {LONG}\n",
        f"> {LONG}\n> {LONG}\n",
        f"| {LONG} |\n| {LONG} |\n",
        f"{LONG}  \n{LONG}\\\nend",
        f"{LONG}\n-----\n{LONG}\n",
        f"{LONG}::\n{LONG}\n",
        "",
        "\n\n",
    ):
        assert unwrap_lines(text) == text


def test_a_list_item_takes_its_own_wrapped_lines():
    assert unwrap_lines(f"- {LONG}\n  and goes on\n- {LONG}\n") == f"- {LONG} and goes on\n- {LONG}\n"


def test_blocks_that_are_kept_keep_their_lines():
    text = f"{LONG}\nmore\n```\n{LONG}\n{LONG}\n```\n{LONG}\nmore\n"
    assert unwrap_lines(text, keep=find_protected(text)) == f"{LONG} more\n```\n{LONG}\n{LONG}\n```\n{LONG} more\n"


@given(
    st.lists(st.sampled_from([LONG, HAN, "", "  ", "- x", "# y", "`a`", "```", "short"]), max_size=12).map("\n".join)
)
@settings(deadline=None)
def test_only_space_changes(text):
    result = unwrap_lines(text, keep=find_protected(text))
    assert "".join(result.split()) == "".join(text.split())
    assert unwrap_lines(text + "\n") == unwrap_lines(text) + "\n" or not text.strip()
