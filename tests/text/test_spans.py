"""Which stretches of a text are protected, and which only look as if they were."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxmt.errors import UsageError
from onnxmt.text.spans import ProtectOptions, find_protected

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def found(text: str, *, kind: str | None = None, **options) -> list[str]:
    spans = find_protected(text, ProtectOptions(**options) if options else None)
    assert all(text[span.start : span.end] == span.text for span in spans)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    return [span.text for span in spans if kind is None or span.kind == kind]


PROTECTED = {
    "case I6": (
        "Hi %1$s, open https://example.org/a_b?x=1&y=2, mail ops@example.org, run `make all` on {count} files.",
        ["%1$s", "https://example.org/a_b?x=1&y=2", "ops@example.org", "`make all`", "{count}"],
    ),
    "tags": ("<b>Save</b> <br/> <a href='x y' disabled>t</a>", ["<b>", "</b>", "<br/>", "<a href='x y' disabled>", "</a>"]),
    "immersive placeholders": ("keep <b0></b0> and {0}", ["<b0>", "</b0>", "{0}"]),
    "comment over lines": ("a <!-- b\nc --> d <!-- e", ["<!-- b\nc -->"]),
    "no tags": ("a <b and c> d, x<y and y>z, 1 < 2, <3", []),
    "entities": ("AT&T; &nbsp; &#39;&#x27; Q&A", ["&nbsp;", "&#39;", "&#x27;"]),
    "printf": ("%d%% of %s, %(name)s %-5.2f %@ %2$ld %5d", ["%d", "%%", "%s", "%(name)s", "%-5.2f", "%@", "%2$ld", "%5d"]),
    "per cent": ("50% discount, 100% sure, 5%, 20%of it, 7 % so", []),
    "strftime and environment": ("%Y-%m-%d in %HOME% %{x}", ["%Y", "%m", "%d", "%HOME%", "%{x}"]),
    "braces": ("{name} {} {a.b[0]!r:>10} ${x} #{y} { $amount }/month", ["{name}", "{}", "{a.b[0]!r:>10}", "${x}", "#{y}", "{ $amount }"]),
    "icu": ("You have {n, plural, one {# file} other {# files}}.", ["{n, plural, one {# file} other {# files}}"]),
    "jinja": ('{{ var|foo:"bar" }} {% if a %} {# note #}', ['{{ var|foo:"bar" }}', "{% if a %}", "{# note #}"]),
    "prose in braces": ("{see below} and { two words here }", []),
    "shell": ("$HOME and ${PATH} cost $5 or $US 6", ["$HOME", "${PATH}"]),
    "code": ("`a. b` ``c ` d`` :class:`~x.Y`", ["`a. b`", "``c ` d``", ":class:`~x.Y`"]),
    "backtick apostrophes": ("don`t and can`t, ``Yes,'' he said, ``No,''; is`False`", ["`False`"]),
    "fences": (
        "```py\nx = 1\n\ny\n```\nafter `z`\n\n~~~~ sh\n~~~\nls\n~~~~\nend\n```\nnever closed",
        ["```py\nx = 1\n\ny\n```", "`z`", "~~~~ sh\n~~~\nls\n~~~~"],
    ),
    "underlined titles": ("One\n~~~~\ntext\n\nTwo\n~~~~\ntext", []),
    "links": (
        '[text](https://a.org/x_(y) "T") ![alt](i.png) [ref][1] [foo] [^1]',
        ["[", '](https://a.org/x_(y) "T")', "![", "](i.png)", "[", "][1]", "[^1]"],
    ),
    "link definition": ("[1]: https://x.org 'T'\n[Tom]: hello", ["[1]: https://x.org 'T'"]),
    "paths": (
        "/etc/hosts. ~/.bashrc ../a/b src/main.c, README.md. C:\\Users\\me\\a.txt. \\\\srv\\share\\x",
        ["/etc/hosts", "~/.bashrc", "../a/b", "src/main.c", "README.md", "C:\\Users\\me\\a.txt", "\\\\srv\\share\\x"],
    ),
    "no paths": ("and/or 1/2 km/h n/a he/she 24/7 either / or 3.5 U.S. end.Now", []),
    "url edges": (
        "(see http://x.org/a_(b).) <http://b.com>, www.c.org/; d.com/e?f=g#h! x.org/{id}?q=%20.",
        ["http://x.org/a_(b)", "http://b.com", "www.c.org/", "d.com/e?f=g#h", "x.org/{id}?q=%20"],
    ),
    "url and Chinese": (
        "见https://a.org的页面，https://zh.wikipedia.org/wiki/中国。",
        ["https://a.org", "https://zh.wikipedia.org/wiki/中国"],
    ),
    "e-mail": ("me@x.co.uk. a.b+c@d.org, @user a@b", ["me@x.co.uk", "a.b+c@d.org"]),
    "emoji": ("I ❤️ you 😀👍🏽 1️⃣ 🇨🇳 👩‍💻 ™ 5", ["❤️", "😀", "👍🏽", "1️⃣", "🇨🇳", "👩‍💻"]),
    "the first and longest wins": ("`https://a.org` <a href='https://b.org'>", ["`https://a.org`", "<a href='https://b.org'>"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PROTECTED.values(), ids=PROTECTED)
def test_find_protected(text, expected):
    assert found(text) == expected


def test_kinds_and_patterns_are_options():
    text = "Ask TICKET-12 at https://a.org about %s"
    assert found(text, kinds=frozenset({"placeholder"})) == ["%s"]
    assert found(text, patterns=(r"[A-Z]+-\d+",)) == ["TICKET-12", "https://a.org", "%s"]
    assert found(text, patterns=(r"[A-Z]+-\d+",), kind="pattern") == ["TICKET-12"]


def test_all_wrong_options_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        ProtectOptions(
            kinds=frozenset({"urls"}), patterns=("(", "x*"), placeholders=("abc", "［{n}］"), most_placeholders=-1
        )
    for expected in ("'urls'", "'(' is no regular", "'x*' matches the empty", "'abc'", "'［{n}］'", "-1", "entity"):
        assert expected in str(caught.value)


UNITS = ["`", "``a`", "<!--", "<a b", "{", "{{", "}", "[", "](", "[a](", "%", "http://", "http://(", "a@", "a.", "/a", "~~~\n", "```x\n", "😀", "\\", "&", "$("]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_hostile_text_is_read(unit):
    """Each expression has one place to start: none of these takes longer than reading the text."""
    found(unit * 20_000)
    found(unit * 20_000 + "\n" + unit)


@given(st.lists(st.sampled_from([*"`{}[]()<>%$/.:@\\ \n~", "a", "1", "http://", "好", "😀"]), max_size=60).map("".join))
@settings(max_examples=300, deadline=None)
def test_spans_are_ordered_and_true_to_the_text(text):
    found(text)


def test_few_spans_in_plain_prose():
    path = DATA / "tatoeba" / "src.en.txt"
    if not path.is_file():
        pytest.skip("the shared test sets are not beside this checkout")
    assert found(path.read_text(encoding="utf-8")) == ["tatoeba.org"]
