"""The flags of the text layer on the command line, with the demo model."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from onnxmt.text.chinese import ChineseOptions, to_chinese_form
from tests.cli.harness import invoke

ELEPHANTS = "There were 4711 blue elephants in Zanzibar."


def test_strict_names_the_line_and_loses_nothing() -> None:
    given = f"Good morning.\n{ELEPHANTS}\n\nThank you.\n".encode()
    plain = invoke("translate", "--beams", "1", stdin=given)
    assert (plain.code, len(plain.lines)) == (0, 4)
    strict = invoke("translate", "--beams", "1", "--strict", stdin=given)
    assert (strict.code, strict.text) == (1, plain.text)
    errors = [line for line in strict.err.splitlines() if line.startswith("onnxmt: error:")]
    assert len(errors) == 1
    assert re.match(r"onnxmt: error: standard input, line 2: \d warnings? \(number", errors[0])
    assert invoke("translate", "--strict", "Good morning.").code == 0


def test_json_tells_segments_warnings_and_the_strict_error() -> None:
    outcome = invoke(
        "translate", "--json", "--strict", "--beams", "1", f"Good morning. {ELEPHANTS}", "PLEASE CLOSE THE DOOR"
    )
    assert outcome.code == 1
    first, second = outcome.objects
    assert [segment["source"] for segment in first["segments"]] == ["Good morning.", ELEPHANTS]
    number = next(warning for warning in first["warnings"] if warning["kind"] == "number")
    assert first["source"][slice(*number["span"])] == "4711"
    assert number["message"] == "the number 4711 is not in the translation"
    assert "strict allows none" in first["error"]
    assert (second["segments"][0]["case"], "error" in second) == ("all_caps", False)


def test_no_checks_and_no_split_say_nothing() -> None:
    assert invoke("translate", "--beams", "1", "--no-checks", "--strict", ELEPHANTS).err == ""
    raw = invoke("translate", "--beams", "1", "--no-split", "--strict", "--json", ELEPHANTS)
    assert raw.code == 0
    assert raw.objects[0]["warnings"] == []


def test_protect_takes_patterns() -> None:
    text = "Part ZX-81 fits part QQ-12."
    both = invoke("translate", "--protect", r"ZX-\d+", "--protect", r"QQ-\d+", text).text
    assert (both.count("ZX-81"), both.count("QQ-12")) == (1, 1)


QUOTED = "Tom: “Yes”, he said (no)."


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "请关门。"),
        (("--traditional", "s2t"), "請關門。"),
        (("--chinese-form", "none", "--traditional", "s2tw"), "請關門。"),
    ],
)
def test_traditional_output(flags: tuple[str, ...], expected: str) -> None:
    assert invoke("translate", *flags, "Please close the door.").lines == [expected]


def test_each_rule_of_chinese_form_has_a_name() -> None:
    def made(*flags: str) -> str:
        return invoke("translate", "--beams", "1", *flags, QUOTED).lines[0]

    raw = made("--chinese-form", "none")
    assert to_chinese_form(raw, ChineseOptions()) == made() != raw
    for rules, options in (
        ("full-width", {"punctuation": True}),
        ("quotes", {"quotes": "curly"}),
        ("corner-quotes", {"quotes": "corner"}),
        ("spacing", {"han_spaces": True}),
        ("ellipsis,spacing", {"ellipsis": True, "han_spaces": True}),
    ):
        off = {"punctuation": False, "ellipsis": False, "quotes": "keep", "han_spaces": False}
        assert made("--chinese-form", rules) == to_chinese_form(raw, ChineseOptions(**{**off, **options}))
    assert made("--latin-spacing", "add") == to_chinese_form(raw, ChineseOptions(latin_space="add"))


def test_casing_can_be_left_alone() -> None:
    text = "PLEASE CLOSE THE DOOR"
    assert invoke("translate", text).lines == ["请关门"]
    assert invoke("translate", "--no-end-marks", text).lines == ["请关门。"]
    assert invoke("translate", "--no-casing", "--json", text).objects[0].get("segments") is None


WRAPPED = (
    "Good morning to all of you who are here, and also\nto those who are not here on this day.\n\n- one\n\nThank you."
)


def test_unwrap_takes_a_paragraph_for_one_text(tmp_path: Path) -> None:
    (tmp_path / "wrapped.txt").write_bytes(WRAPPED.replace("\n", "\r\n").encode())
    outcome = invoke("translate", "--unwrap", "-f", tmp_path / "wrapped.txt")
    first, blank, item, other, last = outcome.out.decode().split("\r\n")
    assert (blank, other) == ("", "")
    assert re.search("[一-鿿]", first)
    assert item.startswith("- ")
    assert last
    assert len(invoke("translate", "-f", tmp_path / "wrapped.txt").out.decode().split("\r\n")) == 6


def test_overlap_keeps_the_lines() -> None:
    text = "A man is old.\nHe is sleeping.\n\nI like water."
    outcome = invoke("translate", "--overlap", "2", stdin=text.encode())
    assert [bool(line) for line in outcome.text.split("\n")] == [True, True, False, True]


def test_a_fault_behind_a_paragraph_comes_after_it() -> None:
    outcome = invoke("translate", "--unwrap", stdin=b"Please close the door.\n\xff\n")
    assert outcome.code == 2
    assert outcome.lines == ["请关门。"]
    assert "standard input, line 2: byte 24" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--no-split", "--unwrap", "--protect", "a"), "--unwrap, --protect has no effect with --no-split"),
        (("--no-split", "--no-casing"), "--no-casing has no effect with --no-split"),
        (("--chinese-form", "pretty"), "'pretty' is no rule; there are full-width"),
        (("--chinese-form", "quotes,corner-quotes"), "quotes and corner-quotes exclude each other"),
        (("--latin-spacing", "some"), "latin_space is 'some', allowed: ('keep', 'add', 'remove')"),
        (("--traditional", "big5"), "traditional is 'big5'"),
        (("--protect", "("), "the pattern '(' is no regular expression"),
        (("--protect", "x*"), "the pattern 'x*' matches the empty text"),
    ],
)
def test_wrong_flags_are_refused(arguments: tuple[str, ...], message: str) -> None:
    outcome = invoke("translate", *arguments, "Thank you.")
    assert message in outcome.error()


def test_traditional_without_opencc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxmt.text import chinese

    chinese._opencc.cache_clear()
    monkeypatch.setitem(sys.modules, "opencc", None)
    outcome = invoke("translate", "--traditional", "s2t", "Thank you.")
    assert "pip install 'onnxmt[opencc]'" in outcome.error()
    monkeypatch.undo()
    chinese._opencc.cache_clear()
