"""What is prose in each format and how it is written back: literal documents, literal results."""

from __future__ import annotations

import json

import pytest

from onnxmt.errors import UsageError
from onnxmt.text.formats.document import DocumentError, DocumentOptions
from onnxmt.text.formats.registry import format_of_name, read_document


def units(text: str, name: str, **options: object) -> list[str]:
    return [unit.text for unit in read_document(text, name, DocumentOptions(**options)).units]


def written(text: str, name: str, *translations: str | None, **options: object) -> str:
    rendered = read_document(text, name, DocumentOptions(**options)).render(translations)
    assert rendered.problems == ()
    return rendered.text


def problems(text: str, name: str, *translations: str) -> list[str]:
    document = read_document(text, name)
    rendered = document.render(translations)
    assert rendered.text == text
    return [problem.message for problem in rendered.problems]


# --- Markdown

MARKDOWN = """\
---
title: Front matter
---
# A title #

A paragraph that is
wrapped, with *emphasis* and `code()`.

> A quotation
> over lines.

- [ ] a task
- [a link](http://a.b/c_d "title")
  ![a picture](x.png) here

Setext title
============

| Head | `x\\|y` |
|------|:-----:|
| a \\| b |  |
| last | see [ref] |

```python
print("no prose")
```

    indented code

<div>a block of HTML</div>

Hard break here..
and the next line.[^1]

[^1]: A note.

[ref]: http://example.org
""".replace("..", "  ")


def test_markdown_units() -> None:
    assert units(MARKDOWN, "markdown") == [
        "A title",
        "A paragraph that is wrapped, with <m1>emphasis</m1> and `code()`.",
        "A quotation over lines.",
        "a task",
        "a picture",
        "<m1>a link</m1> <m2/> here",
        "Setext title",
        "Head",
        "a | b",
        "last",
        "see <m1>ref</m1>",
        "Hard break here\nand the next line.",
        "A note.",
    ]
    document = read_document(MARKDOWN, "markdown")
    assert [unit.line for unit in document.units][:6] == [4, 6, 9, 12, 14, 13]


def test_markdown_is_written_around_the_translations() -> None:
    text = written(
        MARKDOWN, "markdown", "标题", "换行的段落，有`code()`和<m1>强调</m1>。", "引文。", "任务", "图", "<m1>链接</m1><m2/>在此",
        "次题", "头", "甲|乙", "末", "见<m1>此</m1>", "硬换行\n和下一行。", "注。",
    )  # fmt: skip
    expected = MARKDOWN
    for source, translation in (
        ("# A title #", "# 标题 #"),
        ("A paragraph that is\nwrapped, with *emphasis* and `code()`.", "换行的段落，有`code()`和*强调*。"),
        ("> A quotation\n> over lines.", "> 引文。"),
        ("[ ] a task", "[ ] 任务"),
        (
            '[a link](http://a.b/c_d "title")\n  ![a picture](x.png) here',
            '[链接](http://a.b/c_d "title")![图](x.png)在此',
        ),
        ("Setext title\n", "次题\n"),
        ("| Head |", "| 头 |"),
        ("a \\| b", "甲\\|乙"),
        ("last | see [ref]", "末 | 见[此][ref]"),
        ("Hard break here  \nand the next line.", "硬换行  \n和下一行。"),
        ("[^1]: A note.", "[^1]: 注。"),
    ):
        assert source in expected
        expected = expected.replace(source, translation)
    assert text == expected


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Words.", "# 词", "\\# 词"),
        ("Words.", "1. 词", "1\\. 词"),
        ("Words.", "- 词", "\\- 词"),
        ("Words.", "> 词", "\\> 词"),
        ("Words.", "2 * 3 * 4 词", "2 * 3 * 4 词"),
        ("Words.", "*词*", "\\*词*"),
        ("Words.", "<b>词", "\\<b>词"),
        ("Words.", "[词](x)", "\\[词\\](x)"),
        ("Words.", "`词`", "&#96;词&#96;"),
        ("Words.", "&lt;词", "&amp;lt;词"),
        ("Words.", "snake_case_词", "snake_case_词"),
        ("A _good_ day", "好<m1>的</m1>天", "好*的*天"),  # _ inside a word is no emphasis
        ("A **“good”** day", "好<m1>“的”</m1>天", "好 **“的”** 天"),  # nor are ** before a mark and behind a letter
        ("A \\* star", "一个*星", "一个*星"),
        ("Caf&eacute; &copy; 2024", "咖啡 © 2024", "咖啡 © 2024"),
        ("a<br>b c", "甲\n乙丙", "甲<br>乙丙"),
        ("Press <kbd>Ctrl</kbd> now", "现在按`Ctrl`", None),
    ],
)
def test_markdown_is_escaped_where_it_would_read_otherwise(source: str, translation: str, expected: str | None) -> None:
    if expected is None:
        assert units(source, "markdown") == ["Press `m1` now"]
        expected, translation = "现在按<kbd>Ctrl</kbd>", "现在按`m1`"
    assert written(source, "markdown", translation) == expected


@pytest.mark.parametrize(
    ("source", "translation", "message"),
    [
        ("A *good* day", "好的天", "the markup '*' is in the translation no more"),
        ("A *good* day", "<m1></m1>好的天", "nothing is left inside '*' in the translation"),
        ("A *good* day", "</m1>好<m1>的天", "the markup stands in another order in the translation"),
        ("A *good* day", "<m1>好</m1>的<m1>天</m1>", "the markup '*' is in the translation 2 times"),
        ("A day", "一\n天", "the translation has another number of lines"),
        ("A day", "…", "the translation holds no word"),
        ("A `x` day", "一天", "the markup '`x`' is in the translation no more"),
    ],
)
def test_markdown_stays_where_it_would_break(source: str, translation: str, message: str) -> None:
    assert problems(source, "markdown", translation) == [message]


def test_markdown_in_containers_with_crlf_tabs_and_a_byte_order_mark() -> None:
    text = "\ufeff# Title\r\n\r\n>\t1.  One line\r\n>     and more  \r\n>     then the end\r\n"
    assert units(text, "markdown") == ["Title", "One line and more\nthen the end"]
    assert written(text, "markdown", "题", "甲\n乙") == "\ufeff# 题\r\n\r\n>\t1.  甲  \r\n>     乙\r\n"


def test_markdown_chinese_lines_are_joined_without_spaces() -> None:
    assert units("这是一个\n句子，on two\nlines。", "markdown") == ["这是一个句子，on two lines。"]


def test_markdown_dialects_stay() -> None:
    text = "::: note\nSome words\n:::\n\n> [!NOTE]\n> Some words\n\nA :rocket: and $x_1^2$ here {#name}\n"
    assert units(text, "markdown") == ["Some words", "A <m1/> and <m2/> here"]


# --- HTML

HTML = """\
<!DOCTYPE html>
<html><head><title>A &amp; B</title><meta name="description" content="About it"><style>p { x: y }</style></head>
<body><!-- a comment -->
<p class=x title='It&#39;s a "title"'>Some <b>bold</b> text&nbsp;here,
with <code>code()</code> and <img src="a.png" alt="a picture">.</p>
<ul><li>One<li><a href="?a=1&amp;b=2">Two</a></ul>
<pre>no prose</pre><p translate="no">not this</p><input type="submit" value="Send it" placeholder='type "here"'>
<p>First<br>second &lt;tag&gt;</p><script>var x = "<p>no</p>";</script></body></html>
"""


def test_html_units() -> None:
    assert units(HTML, "html", meta=True) == [
        "A & B",
        "About it",
        'It\'s a "title"',
        "a picture",
        "Some <m1>bold</m1> text\xa0here, with `code()` and <m3/>.",
        "One",
        "Two",
        "Send it",
        'type "here"',
        "First\nsecond &lt;tag&gt;",
    ]
    assert "About it" not in units(HTML, "html")
    assert units(HTML, "html", attributes=False)[:3] == ["A & B", units(HTML, "html")[3], "One"]


def test_html_is_written_around_the_translations() -> None:
    text = written(
        HTML, "html", "甲 & 乙 <丙>", "关于", "是'题'", '一"图"', "一些`code()`和<m1>粗\xa0体</m1>文<m3/>。", "一", "二", "送",
        "在'此'\"写\"", "首\n次 &lt;tag&gt;", meta=True,
    )  # fmt: skip
    expected = HTML
    for source, translation in (
        ("A &amp; B", "甲 &amp; 乙 &lt;丙&gt;"),
        ("About it", "关于"),
        ("'It&#39;s a \"title\"'", "'是&#39;题&#39;'"),
        (
            'Some <b>bold</b> text&nbsp;here,\nwith <code>code()</code> and <img src="a.png" alt="a picture">.',
            '一些<code>code()</code>和<b>粗&nbsp;体</b>文<img src="a.png" alt="一&quot;图&quot;">。',
        ),
        ("<li>One", "<li>一"),
        (">Two<", ">二<"),
        ("Send it", "送"),
        ('type "here"', '在&#39;此&#39;"写"'),
        ("First<br>second &lt;tag&gt;", "首<br>次 &lt;tag&gt;"),
    ):
        assert source in expected
        expected = expected.replace(source, translation)
    assert text == expected


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "<p",
        "<b>one<i>two</b>three</i>",
        "</p>x<",
        "<!-- x",
        "&#xZ; &nope",
        "<script>x",
        "<p x='",
        "<![CDATA[a]]>",
    ],
)
def test_html_that_is_wrong_comes_back(text: str) -> None:
    document = read_document(text, "html")
    assert document.render([unit.text for unit in document.units]).text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>Hi there.</p", "<p>汉</p"),
        ("<p>Hi there <b", "<p>汉 <b"),
        ("<p>Hi there <!-- open", "<p>汉 <!-- open"),
        ('Hi there. <p title="Good morning', '汉 <p title="Good morning'),
        ("<p>Hi there.</p><![x[ b ]> ", "<p>汉</p><![x[ b ]> "),  # Python 3.11's parser raises AssertionError
        ("<p>Hi there.</p><![<![<!", "<p>汉</p><![<![<!"),
        ("<!--><p>Hi there.</p>", "<!--><p>汉</p>"),
        ("<!-- a --!><p>Hi there.</p>", "<!-- a --!><p>汉</p>"),
        ("<!--[if !IE]><!--><p>Hi there.</p><!--<![endif]-->", "<!--[if !IE]><!--><p>汉</p><!--<![endif]-->"),
    ],
)
def test_html_markup_without_an_end_stays(text: str, expected: str) -> None:
    assert written(text, "html", "汉") == expected


@pytest.mark.parametrize("start", ["<a ", '<a b="', "<!--", "<!--x>", "</", "<!", "<?", "{%", "{#"])
def test_html_is_read_in_one_pass_however_many_starts_lack_an_end(start: str) -> None:
    """Looking for each one's end through the whole text took minutes; here the run of the tests would not end."""
    text = start * (400_000 // len(start))
    assert read_document(text, "html").render([None] * len(read_document(text, "html").units)).text == text


def test_html_template_tags_keep_their_order() -> None:
    text = "<p>{% if a < b %}Good {{ name }}{% else %}Bad{% endif %} day</p>"
    assert units(text, "html") == ["Good {{ name }}<m1/>Bad<m2/> day"]
    assert (
        written(text, "html", "{{ name }}好<m1/>坏<m2/>天")
        == "<p>{% if a < b %}{{ name }}好{% else %}坏{% endif %}天</p>"
    )
    assert problems(text, "html", "{{ name }}好<m2/>坏<m1/>天") == [
        "the markup stands in another order in the translation"
    ]


# --- subtitles

SRT = (
    "\ufeff1\r\n00:00:01,000 --> 00:00:04,000\r\nThe library opens\r\nat nine.\r\n\r\n"
    "00:00:05,000 --> 00:00:06,000 X1:1 X2:2\r\n- <i>Who</i> is it?\r\n- Me.\r\n\r\n\r\n"
    "3\r\n00:00:07.000 --> 00:00:08.000\r\n{\\an8}1990\r\n"
)


def test_subtitles() -> None:
    assert units(SRT, "srt") == ["The library opens at nine.", "<m1>Who</m1> is it?\nMe."]
    text = written(SRT, "srt", "图书馆九点开门。", "是<m1>谁</m1>？\n我。")
    assert text == SRT.replace("The library opens\r\nat nine.", "图书馆九点开门。").replace(
        "<i>Who</i> is it?", "是<i>谁</i>？"
    ).replace("Me.", "我。")


def test_subtitles_are_wrapped_to_the_screen() -> None:
    sentence = "这是一个很长的句子，有许多许多的汉字，一行放不下，所以分成两行，每行都差不多长。"
    text = written("1\n00:00:01,000 --> 00:00:04,000\nA long sentence.\n", "srt", sentence)
    assert text.splitlines()[2:] == [
        "这是一个很长的句子，有许多许多的汉字，",
        "一行放不下，所以分成两行，每行都差不多长。",
    ]


def test_subtitles_with_an_arrow_in_the_translation_stay() -> None:
    text = "1\n00:00:01,000 --> 00:00:04,000\nWords\n"
    assert problems(text, "srt", "甲 --> 乙") == [
        "the translation holds '-->', which stands between times in subtitles"
    ]


# --- catalogues

PO = """\
# A comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. extracted
#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open %s \\"now\\"\\n"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid ""
"Long "
"text\\n"
"of two lines"
msgstr ""

msgid "done"
msgstr "fertig"

#~ msgid "old"
#~ msgstr "alt"
"""


def test_catalogues() -> None:
    assert units(PO, "po") == ['Open %s "now"', "%d file", "%d files", "Long text\nof two lines"]
    text = written(PO, "po", '立即"打开"%s', "%d 个文件", "%d 份文件", "长文\n两行")
    expected = PO
    for source, translation in (
        ("#, c-format\n", "#, c-format, fuzzy\n"),
        ('now\\"\\n"\nmsgstr ""', 'now\\"\\n"\nmsgstr "立即\\"打开\\"%s\\n"'),
        ('\nmsgid "%d file"\n', '\n#, fuzzy\nmsgid "%d file"\n'),
        ('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "%d 个文件"\nmsgstr[1] "%d 份文件"'),
        ('\nmsgid ""\n"Long "', '\n#, fuzzy\nmsgid ""\n"Long "'),
        ('of two lines"\nmsgstr ""', 'of two lines"\nmsgstr ""\n"长文\\n"\n"两行"'),
    ):
        assert expected.count(source) == 1, source
        expected = expected.replace(source, translation)
    assert text == expected
    assert "fuzzy" not in written(PO, "po", "开%s", "%d个", "%d份", "长\n文", fuzzy=False)


def test_catalogues_translations_are_kept_unless_asked_for() -> None:
    assert "done" in units(PO, "po", redo=True)
    assert 'msgstr "完成"' in written(PO, "po", None, None, None, None, "完成", redo=True)


def test_catalogues_placeholders() -> None:
    text = '#, c-format\nmsgid "%s of %d"\nmsgstr ""\n'
    assert problems(text, "po", "%s 的") == ["the placeholders differ in the translation: %d"]
    assert problems(text, "po", "%d 的 %s") == ["%s and %d stand in another order in the translation"]
    assert 'msgstr "{b}的{a}"' in written('msgid "{a} of {b}"\nmsgstr ""\n', "po", "{b}的{a}")


def test_a_language_with_one_form_gets_the_plural() -> None:
    text = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    assert units(text, "po") == ["%d files"]


# --- JSON

JSON = '{\n\t"title" : "Some words", "id": "some-id", "n": [1.50, true, "More words\\n\\u00e9"],\n "url": "http://a.b", "key": "no: this"}'


def test_json() -> None:
    assert units(JSON, "json") == ["Some words", "More words\né"]
    text = written(JSON, "json", '一"些"', "更多\né")
    assert text == JSON.replace("Some words", '\\u4e00\\"\\u4e9b\\"').replace("More words", "\\u66f4\\u591a")
    assert [u.where for u in read_document(JSON, "json").units] == ["title", "n[2]"]


@pytest.mark.parametrize(
    ("value", "is_prose"),
    [
        ("Save", True), ("Save as…", True), ("save", False), ("save the file", True), ("MAX_SIZE", False), ("en-US", False),
        ("text/html", False), ("1.2.3", False), ("#ff0000", False), ("camelCase", False), ("{name}", False), ("", False),
        ("http://a.b/c", False), ("550e8400-e29b-41d4-a716-446655440000", False), ("{count} files", True), ("OK!", True),
    ],
)  # fmt: skip
def test_json_values_that_are_for_programs_stay(value: str, is_prose: bool) -> None:
    assert units(f'["{value}"]', "json") == ([value] if is_prose else [])


@pytest.mark.parametrize("value", ["a." * 50_000, "aB" * 50_000 + " .", "a-" * 50_000])
def test_json_values_are_judged_in_one_pass(value: str) -> None:
    assert "".join(units(json.dumps([value]), "json")) in {value, ""}


def test_json_paths() -> None:
    text = '{"a": {"x": "One word", "y": "two"}, "b": [{"x": "Three words"}, {"x": "four"}], "x": "Five words"}'
    assert units(text, "json", json_paths=("b.*.x",)) == ["Three words", "four"]
    assert units(text, "json", json_paths=("**.x",)) == ["One word", "Three words", "four", "Five words"]
    assert units(text, "json", json_paths=("a.y", "b.0.x")) == ["two", "Three words"]
    with pytest.raises(DocumentError, match=r"no text in the document is at a path of c\.\*"):
        units(text, "json", json_paths=("c.*",))
    with pytest.raises(UsageError, match="have an empty step"):
        DocumentOptions(json_paths=("a..b",))


# --- plain text and the rest


def test_plain_text() -> None:
    text = "  One line.\r\n\r\n```\ncode here\n```\n12345\nThe end"
    assert units(text, "text") == ["One line.", "The end"]
    assert written(text, "text", "一行。", "完") == text.replace("One line.", "一行。").replace("The end", "完")
    wrapped = "A paragraph that is wrapped at about forty\ncharacters and goes on to the next line.\n\nEnd.\n"
    assert units(wrapped, "text", unwrap=True) == [
        "A paragraph that is wrapped at about forty characters and goes on to the next line.",
        "End.",
    ]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ('{"a": 1,}', "json", r"line 1, column 9 is not JSON: "),
        ('{"a":\n tru}', "json", r"line 2, column 2 is not JSON: "),
        ("[" * 100_000, "json", "nested too deeply"),
        ("hello", "srt", "no line gives times"),
        ("hello", "po", "line 1 is not one of a gettext catalogue: 'hello'"),
        ('msgid "a"\nmsgstr "b\n', "po", "line 2: '\"b' is no string between quotes"),
        ('msgid "a"\n\nmsgstr ""\n', "po", None),
        ('msgid "a"\n', "po", "line 1: the message that begins here has no msgstr"),
        (
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n',
            "po",
            "charset=ISO-8859-1; only UTF-8",
        ),
    ],
)
def test_documents_that_are_not_of_the_format(text: str, name: str, message: str | None) -> None:
    if message is None:
        assert units(text, name) == ["a"]
        return
    with pytest.raises(DocumentError, match=message):
        read_document(text, name)


def test_formats_by_name() -> None:
    assert [format_of_name(name) for name in ("a.md", "A.HTM", "x.pot", "a.b.json", "x.srt", "a.txt", "README")] == [
        "markdown", "html", "po", "json", "srt", None, None,
    ]  # fmt: skip
    with pytest.raises(
        UsageError, match="the format 'pdf' is not known; formats are text, markdown, html, srt, po, json"
    ):
        read_document("", "pdf")
    with pytest.raises(UsageError, match="has 1 units; 2 translations were given"):
        read_document("Words", "text").render(["a", "b"])
