from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.serve.markup import read_markup


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", ()),
        ("plain", ("plain",)),
        ("<p>One.</p>\n<p> Two &amp; three </p>", ("One.", "Two & three")),
        ("<p>5 &lt; 6</p>", ()),
        ("a < b and c > d", ("a < b and c > d",)),
        ("<!-- no --><?xml no?><!DOCTYPE html>yes", ("yes",)),
        ("<script>var no = 1 < 2;</script>yes<style>no{}</style>", ("yes",)),
        ("<code>no <b>no</b></code> yes", ("yes",)),
        ('<span translate="no">no</span> yes <i class="x notranslate">no <u>no</u></i>', ("yes",)),
        ('<p title="a > b">yes</p>', ("yes",)),
        ("<p translate=no>no<br>no</p>yes", ("yes",)),
        ("<b>unclosed", ("unclosed",)),
    ],
)
def test_what_is_translated(text: str, runs: tuple[str, ...]) -> None:
    assert read_markup(text).runs == runs


def test_the_rest_stays_and_translations_are_escaped() -> None:
    markup = read_markup("<p class='x'> One. </p><br/>Two")
    assert markup.filled(["1 & 2", "<3>"]) == "<p class='x'> 1 &amp; 2 </p><br/>&lt;3&gt;"


@given(st.text(alphabet=st.sampled_from("ab <>/&;!-\"'?[]=")))
def test_nothing_is_lost_whatever_the_markup(text: str) -> None:
    markup = read_markup(text)
    assert len(markup.fixed) == len(markup.runs) + 1
    rebuilt = "".join(part for pair in zip(markup.fixed, (*markup.runs, ""), strict=True) for part in pair)
    if "&" not in text:
        assert rebuilt == text
