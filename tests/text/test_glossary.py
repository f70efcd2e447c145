from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.errors import GlossaryError
from onnxmt.text.glossary import Glossary, GlossaryEntry, any_case, masked, uses_of
from onnxmt.text.glossary_file import parse_glossary, read_glossary
from onnxmt.text.layer import TextOptions, translate_sentences
from onnxmt.text.spans import find_protected


def found(glossary: dict, text: str) -> list[tuple[str, str]]:
    terms = Glossary.from_dict(glossary).find(text, protected=find_protected(text))
    for term in terms:
        assert text[term.start : term.end] == term.source
    return [(term.source, term.target) for term in terms]


@pytest.mark.parametrize(
    ("glossary", "text", "expected"),
    [
        ({"apple": "苹果"}, "An apple, two Apples, a pineapple and APPLE.", [("apple", "苹果"), ("APPLE", "苹果")]),
        ({"Apple": "苹果公司"}, "Apple sells an apple.", [("Apple", "苹果公司")]),
        ({"IT": "信息技术"}, "IT is what it is.", [("IT", "信息技术")]),
        ({"apple": {"target": "苹果", "case": True}}, "Apple or apple", [("apple", "苹果")]),
        ({"Apple": {"target": "苹果", "case": False}}, "an apple", [("apple", "苹果")]),
        ({"box": {"target": "箱子", "forms": True}}, "A box, boxes, boxed.", [("box", "箱子"), ("boxes", "箱子")]),
        ({"key city": {"target": "重镇", "forms": True}}, "key cities, keys city", [("key cities", "重镇")]),
        ({"day": {"target": "日", "forms": True}}, "days daies", [("days", "日")]),
        (
            {"New York": "纽约", "York": "约克", "York City Hall": "大厅"},
            "New York City Hall",
            [("York City Hall", "大厅")],
        ),
        ({"New York": "纽约", "York": "约克"}, "New York, York", [("New York", "纽约"), ("York", "约克")]),
        ({"hard drive": "硬盘"}, "a hard   drive, a hard-drive, harddrive", [("hard   drive", "硬盘")]),
        ({"mail": "信"}, "mail e-mail mail's mail-in", [("mail", "信"), ("mail", "信")]),
        ({"don": "先生"}, "don't and don’t and don.", [("don", "先生")]),
        ({"C++": "丙"}, "C++ is not C + +.", [("C++", "丙")]),
        ({"server": "服务器"}, "the server at http://server/x and `server`", [("server", "服务器")]),
        ({"数据库": "database"}, "关系数据库很快。", [("数据库", "database")]),
        ({"API": "应用接口", "api": "甲"}, "API and api and Api", [("API", "应用接口"), ("api", "甲"), ("Api", "甲")]),
        ({"it’s": "它"}, "it's", [("it's", "它")]),
    ],
)
def test_finds(glossary, text, expected):
    assert found(glossary, text) == expected


words = st.text("abcAB-' ", min_size=1, max_size=6)


@given(st.lists(words, min_size=1, max_size=12), st.lists(words, min_size=1, max_size=5))
def test_terms_are_apart_and_whole_words(parts, sources):
    text = " ".join(parts)
    entries = [GlossaryEntry(source=s.strip(), target="目标") for s in sources if any(map(str.isalpha, s))]
    end = 0
    for term in Glossary(tuple(entries)).find(text):
        assert term.start >= end
        assert not text[term.start - 1 : term.start].isalnum() or not term.source[0].isalnum()
        assert not text[term.end : term.end + 1].isalnum() or not term.source[-1].isalnum()
        end = term.end


def test_a_whole_word_is_always_found():
    glossary = Glossary.from_dict({"cat": "猫"})
    for text in ("cat", "(cat)", "the cat.", "“cat”", "cat/dog", "Cat!", "\tcat\n"):
        assert len(glossary.find(text)) == 1, text


@pytest.mark.parametrize(
    ("target", "translation", "applied"),
    [
        ("苹果", "我吃苹果。", True),
        ("苹果", "我吃梨。", False),
        ("GitHub", "我用GitHub。", True),
        ("GitHub", "我用GitHubs。", False),
        ("cat", "the category", False),
        ("cat", "a cat.", True),
        ("C++", "用C++写", True),
    ],
)
def test_applied_means_there_exactly(target, translation, applied):
    (use,) = uses_of(Glossary.from_dict({"x": target}).find("x"), translation)
    assert use.applied is applied


def test_each_mention_needs_its_target():
    terms = Glossary.from_dict({"apple": "苹果", "Apple Inc": "苹果公司"}).find("Apple Inc sells an apple and an apple")
    assert [use.applied for use in uses_of(terms, "苹果公司卖苹果")] == [True, True, False]
    assert [use.applied for use in uses_of(terms, "苹果公司")] == [True, False, False]


def test_masked_hides_what_was_applied():
    terms = Glossary.from_dict({"Windows 11": "视窗 11", "Mac": "麦金塔"}).find("Windows 11 or Mac")
    assert masked("Windows 11 or Mac", "视窗 11或者", terms) == ("           or Mac", "     或者")


def test_any_case_writes_terms_as_their_entries_do():
    glossary = Glossary.from_dict({"Apple": "苹果公司", "IT": "信息技术", "book": "书"})
    assert any_case(glossary, "apple likes it and the book") == "Apple likes it and the book"


def test_data_forms():
    plain = {"apple": "苹果", "IT": {"target": "信息技术", "case": False}, "box": {"target": "箱", "forms": True}}
    glossary = Glossary.from_dict(plain)
    assert glossary.to_dict() == plain
    assert Glossary.from_dict(json.loads(json.dumps(plain))) == glossary
    assert pickle.loads(pickle.dumps(glossary)) == glossary
    assert glossary.digest == Glossary.from_dict(dict(reversed(plain.items()))).digest
    assert glossary.digest != Glossary.from_dict({**plain, "apple": "林檎"}).digest
    assert len(glossary) == 3
    assert not Glossary(())


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"": "x"}, "the source term is empty"),
        ({"x": " "}, "the target term is empty"),
        ({" x": "y"}, "has spaces around it"),
        ({"123": "y"}, "holds no letter"),
        ({"x": "a\nb"}, "control character or a line break"),
        ({"x" * 201: "y"}, "201 characters; 200 are allowed"),
        ({"x": 3}, "'x' has int for a target"),
        ({"x": {"case": True}}, "'x' has no target"),
        ({"x": {"target": "y", "fuzzy": 1}}, "unknown option 'fuzzy'"),
        ({"x": {"target": "y", "case": "yes"}}, "case is 'yes'"),
        ({"x": {"target": "y", "forms": None}}, "forms is None"),
        ({"apple": "a", "APPLE ": "b"}, "has spaces around it"),
        ({"apple": "a", "Apple": {"target": "b", "case": False}}, "'Apple' has two targets, 'a' and 'b'"),
        (["x"], "found list"),
    ],
)
def test_refused(terms, message):
    with pytest.raises(GlossaryError, match="glossary") as caught:
        Glossary.from_dict(terms)
    assert message in str(caught.value)


def test_file(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeff# terms\r\n\r\napple\t苹果\r\n API \t 接口 \tnocase, forms\r\napple\t苹果".encode())
    assert read_glossary(path).to_dict() == {"apple": "苹果", "API": {"target": "接口", "case": False, "forms": True}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apple", "line 1, column 6: no tab and target behind 'apple'"),
        ("#\napple\t", "line 2, column 7: the target term is empty"),
        ("\tx", "line 1, column 1: the source term is empty"),
        ("a\tb\tcase nocase", "line 1, column 5: case and nocase at once"),
        ("a\tb\tbold", "line 1, column 5: unknown option 'bold'; options are case, nocase, forms"),
        ("a\tb\tcase\tx", "line 1, column 10: a third tab"),
        ("a\tb\n\nA\tc\tnocase", "line 3, column 3: 'A' becomes 'c' here and 'b' in line 1"),
        ("a\tb\nx y\nz\t", "line 2, column 4: no tab and target behind 'x y'; line 3, column 3: the target"),
        ("# nothing\n", "has no terms"),
    ],
)
def test_wrong_lines_are_named(text, message):
    with pytest.raises(GlossaryError) as caught:
        parse_glossary(text, name="t.tsv")
    assert str(caught.value).startswith("t.tsv")
    assert message in str(caught.value)


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "latin.tsv").write_bytes(b"a\tb\ncaf\xe9\tx\n")
    with pytest.raises(GlossaryError, match=r"latin\.tsv is not UTF-8: line 2 has a byte 0xe9"):
        read_glossary(tmp_path / "latin.tsv")
    with pytest.raises(GlossaryError, match="is a folder"):
        read_glossary(tmp_path)
    with pytest.raises(GlossaryError, match="No such file"):
        read_glossary(tmp_path / "none.tsv")


def layer(translations: dict[str, list[str]], glossary: dict, source: str, **options):
    (result,) = translate_sentences(
        [source],
        lambda texts: [translations[text] for text in texts],
        options=TextOptions(glossary=Glossary.from_dict(glossary), retry=False, **options),
    )
    return result


def test_the_layer_takes_the_candidate_with_the_term():
    result = layer({"I like it.": ["我很喜欢。", "我喜欢此物。"]}, {"it": "此物"}, "I like it.")
    assert result.text == "我喜欢此物。"
    assert [use.to_dict() for use in result.terms] == [{"source": "it", "target": "此物", "applied": True}]
    assert result.warnings == ()


def test_the_layer_tells_of_a_missed_term():
    result = layer({"I like the dog.": ["我喜欢猫。"]}, {"dog": "犬"}, "I like the dog.")
    assert [use.applied for use in result.terms] == [False]
    (warning,) = result.warnings
    assert (warning.kind, warning.span) == ("glossary", (11, 14))
    assert warning.message == "the glossary's '犬' for 'dog' is not in the translation"


def test_the_layer_leaves_targets_as_they_are():
    result = layer({"The tool is good.": ["A/B, 测试 工具很好."]}, {"tool": "A/B, 测试 工具"}, "The tool is good.")
    assert result.text == "A/B, 测试 工具很好。"
    assert result.terms[0].applied


def test_a_mark_behind_a_term_is_in_chinese_form():
    result = layer({"I like books.": ["我喜欢图书."]}, {"books": "图书"}, "I like books.")
    assert result.text == "我喜欢图书。"


def test_numbers_and_names_of_terms_are_no_faults():
    result = layer({"Windows 11 is good.": ["Fenster XI很好。"]}, {"Windows 11": "Fenster XI"}, "Windows 11 is good.")
    assert result.warnings == ()


def test_terms_in_capitals_are_found_with_places_in_the_source():
    result = layer(
        {"My Apple likes the book.": ["我的苹果公司喜欢书。"]}, {"Apple": "苹果公司"}, "MY APPLE LIKES THE BOOK."
    )
    assert [(use.source, use.start, use.end, use.applied) for use in result.terms] == [("APPLE", 3, 8, True)]
