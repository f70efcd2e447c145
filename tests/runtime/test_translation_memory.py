from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt import Translator
from onnxmt.errors import TranslationMemoryError, UsageError
from onnxmt.runtime.identity import model_digest
from onnxmt.runtime.outcome import Outcome
from onnxmt.runtime.translation import Alternative, TranslateOptions
from onnxmt.runtime.translation_memory import TranslationMemory, default_memory_path
from onnxmt.text.glossary import Glossary, TermUse
from onnxmt.text.pair import TextWarning

TEXTS = [
    "The dog likes Tom. He has 3 books, see https://a.org/x too.",
    "GOOD MORNING TO YOU",
    "Good morning.",
    "",
    "42",
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.sqlite"


def counted(memory) -> tuple[Translator, list[int]]:
    """A translator, and how often its model was asked so far."""
    translator, calls = Translator.load(memory=memory), [0]
    for name in ("start", "start_seeing"):
        real = getattr(translator.model, name)

        def asked(*arguments, real=real):
            calls[0] += 1
            return real(*arguments)

        setattr(translator.model, name, asked)
    return translator, calls


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alternatives": 2},
        {"split": False},
        {"beams": 1},
        {"overlap": 1},
        {"glossary": Glossary.from_dict({"dog": "GitHub"})},
    ],
    ids=str,
)
def test_a_second_run_asks_no_model_and_says_the_same(path, options):
    said = []
    for run_number in range(2):
        with TranslationMemory.open(path) as memory:
            translator, calls = counted(memory)
            found = translator.translate_detailed(TEXTS, options=TranslateOptions(**options))
            said.append([json.dumps(one.to_dict(), ensure_ascii=False) for one in found])
            assert (calls[0] == 0) is (run_number == 1)
    assert said[0] == said[1]
    plain = Translator.load().translate_detailed(TEXTS, options=TranslateOptions(**options))
    assert said[0] == [json.dumps(one.to_dict(), ensure_ascii=False) for one in plain]


def test_other_settings_are_other_translations(path):
    with TranslationMemory.open(path) as memory:
        translator, calls = counted(memory)
        for options in (
            {}, {"beams": 2}, {"alternatives": 1}, {"max_new_tokens": 30}, {"text": None}, {"length_penalty": 0.5},
            {"glossary": Glossary.from_dict({"dog": "狗"})}, {"glossary": Glossary.from_dict({"dog": "犬"})},
        ):  # fmt: skip
            before = calls[0]
            translator.translate("The dog likes Tom.", options=TranslateOptions(**options))
            assert calls[0] > before, options
        before = calls[0]
        translator.translate("The dog likes Tom.", options=TranslateOptions(seed=4, batch_tokens=64))
        assert calls[0] == before


def test_sampling_is_not_remembered(path):
    with TranslationMemory.open(path) as memory:
        translator, calls = counted(memory)
        for _ in range(2):
            before = calls[0]
            translator.translate("The dog likes Tom.", options=TranslateOptions(sample=True))
            assert calls[0] > before
        assert len(memory) == 0


def test_one_call_translates_a_sentence_once():
    translator, calls = counted(None)
    windows = [["The dog likes Tom."], ["Good morning.", "The dog likes Tom."], ["Good morning."]]
    said = [one.text for one in translator.translate_windows(windows)]
    assert said[0] == said[2]
    assert calls[0] == 2


def test_a_model_is_known_by_its_files():
    manifest = Translator.load().bundle.manifest

    def altered(ending: str) -> str:
        files = tuple(
            dataclasses.replace(entry, sha256="0" * 64) if entry.path.endswith(ending) else entry
            for entry in manifest.files
        )
        return model_digest(dataclasses.replace(manifest, files=files))

    assert model_digest(manifest) == altered(".md")
    assert len({model_digest(manifest), altered("decoder.onnx"), altered("weights.bin"), altered(".spm")}) == 4


texts = st.text(max_size=20)


@given(
    st.builds(
        Outcome,
        text=texts,
        score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        tokens=st.lists(st.integers(0, 70000)).map(tuple),
        finished=st.booleans(),
        alternatives=st.lists(
            st.builds(Alternative, text=texts, score=st.floats(-9, 0), tokens=st.just((1, 2)), finished=st.booleans()),
            max_size=2,
        ).map(tuple),
        warnings=st.lists(
            st.builds(TextWarning, kind=st.just("number"), span=st.just((0, 4)), message=texts), max_size=2
        ).map(tuple),
        terms=st.lists(
            st.builds(TermUse, source=texts, target=texts, applied=st.booleans(), start=st.just(0), end=st.just(2)),
            max_size=2,
        ).map(tuple),
    )
)
def test_outcomes_come_back_equal(outcome):
    assert Outcome.from_json(outcome.to_json()) == outcome


def test_a_value_that_is_no_outcome_is_translated_anew(path):
    with TranslationMemory.open(path) as memory:
        translator, _ = counted(memory)
        said = translator.translate("Good morning.")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE translations SET value = '{}'")
    connection.close()
    with TranslationMemory.open(path) as memory:
        translator, calls = counted(memory)
        assert translator.translate("Good morning.") == said
        assert calls[0] == 1


def test_it_is_bounded_and_keeps_what_was_used_last(path):
    with TranslationMemory.open(path, limit=100_000) as memory:
        first = {b"first" * 4: "x" * 1000}
        memory.keep(first)
        for number in range(300):
            memory.keep({number.to_bytes(20, "big"): "y" * 1000})
            assert memory.look_up(list(first)) == first
        assert 50 < len(memory) <= 99
        assert memory.look_up([(0).to_bytes(20, "big")]) == {}
        assert len(memory.look_up([(299).to_bytes(20, "big")])) == 1


def test_more_keys_than_a_statement_takes(path):
    with TranslationMemory.open(path) as memory:
        entries = {number.to_bytes(20, "big"): str(number) for number in range(2500)}
        memory.keep(entries)
        assert memory.look_up([*entries, b"other"]) == entries


def _work(path, start):
    troubles = []
    with TranslationMemory.open(path, trouble=troubles.append) as memory:
        for number in range(start, start + 60):
            memory.keep({number.to_bytes(20, "big"): str(number)})
            memory.look_up([(number - 20).to_bytes(20, "big")])
    assert not troubles, troubles


def test_several_processes_at_once(path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(path, 40 * number + 100)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    with TranslationMemory.open(path) as memory:
        assert len(memory) == 180


def test_threads_share_one(path):
    with TranslationMemory.open(path) as memory:
        threads = [
            threading.Thread(target=lambda n=n: [memory.keep({bytes([n, m]) * 10: "v"}) for m in range(50)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(memory) == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no database at all, but long enough to be read as one" * 4, "is damaged, or is no translation memory"),
        (None, "is a folder: name a file"),
    ],
)
def test_what_is_no_memory_is_named(path, content, message):
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(TranslationMemoryError, match=message) as caught:
        TranslationMemory.open(path)
    assert str(path) in str(caught.value)
    if content is not None:
        assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mail (text)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(TranslationMemoryError, match="a database of another program"):
        TranslationMemory.open(path)
    assert path.read_bytes() == before


def test_another_format_is_refused(path):
    TranslationMemory.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(TranslationMemoryError, match="has format 7, and this onnxmt reads 1: delete it"):
        TranslationMemory.open(path)


def test_a_full_disk_loses_no_output(path):
    """SQLite's own page limit gives the error that a full disk gives."""
    troubles = []
    with TranslationMemory.open(path, trouble=troubles.append) as memory:
        memory._connection.execute("PRAGMA max_page_count = 1")
        translator, calls = counted(memory)
        long = [f"The dog likes number {number}." for number in range(40)]
        assert all(translator.translate(long))
        assert calls[0] > 0
    assert len(troubles) == 1
    assert "cannot be written (database or disk is full): nothing new is kept" in troubles[0]


def test_damage_while_in_use_is_told_and_nothing_is_lost(path):
    with TranslationMemory.open(path) as memory:
        memory.keep({number.to_bytes(20, "big"): "x" * 500 for number in range(2000)})
    data = bytearray(path.read_bytes())
    data[4096 * 2 : -4096] = b"\xff" * (len(data) - 4096 * 3)
    path.write_bytes(data)
    troubles = []
    try:
        memory = TranslationMemory.open(path, trouble=troubles.append)
    except TranslationMemoryError as error:
        troubles.append(str(error))
    else:
        with memory:
            translator, _ = counted(memory)
            assert translator.translate("Good morning.")
    assert troubles
    assert "is damaged" in troubles[0] or "cannot be written" in troubles[0]


def test_a_read_only_file_is_used(path, monkeypatch):
    with TranslationMemory.open(path) as memory:
        memory.keep({b"k" * 32: "v"})
    path.chmod(0o400)
    monkeypatch.setattr(os, "access", lambda file, mode: False)  # root, as in CI, may write into every file
    troubles = []
    with TranslationMemory.open(path, trouble=troubles.append) as memory:
        assert memory.look_up([b"k" * 32]) == {b"k" * 32: "v"}
        memory.keep({b"l" * 32: "v"})
    assert troubles == [f"the translation memory {path} is read-only: it is used, and nothing new is kept"]


def test_trouble_is_a_warning_by_default(path):
    with TranslationMemory.open(path) as memory:
        memory._connection.execute("PRAGMA max_page_count = 1")
        with pytest.warns(RuntimeWarning, match="nothing new is kept"):
            memory.keep({number.to_bytes(20, "big"): "x" * 5000 for number in range(50)})


def test_limits_and_places(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="100000 or more"):
        TranslationMemory.open(tmp_path / "m", limit=5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_memory_path() == tmp_path / "cache" / "onnxmt" / "translations.sqlite"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_memory_path() == tmp_path / ".cache" / "onnxmt" / "translations.sqlite"
