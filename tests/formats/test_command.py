"""`onnxmt translate` with documents: formats by name, errors in one line, warnings by line, resuming after a kill."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.harness import GOLDEN, Outcome, invoke, started

MODEL = ("--model", str(GOLDEN))
LIBRARY, LIBRARY_ZH = "The library opens at nine.", "图书馆九点开门。"
DOOR, DOOR_ZH = "Please close the door.", "请把门关上。"
STATION, STATION_ZH = "Where is the nearest station?", "最近的车站在哪里？"


def test_a_known_ending_is_translated_as_a_document_and_said(tmp_path: Path) -> None:
    source, target = tmp_path / "README.md", tmp_path / "README.zh.md"
    source.write_text(f"# {LIBRARY}\n\n{DOOR}\n\n```\n{DOOR}\n```\n")
    outcome = invoke("translate", *MODEL, "-f", source, "-o", target)
    assert target.read_text() == f"# {LIBRARY_ZH}\n\n{DOOR_ZH}\n\n```\n{DOOR}\n```\n"
    assert (outcome.code, outcome.text) == (0, "")
    assert outcome.err == f"onnxmt: {source} is translated as markdown (--format text: as plain text)\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "README.zh.md"]


def test_other_files_are_lines_and_a_named_format_wins(tmp_path: Path) -> None:
    source = tmp_path / "notes.txt"
    source.write_text(f"# {LIBRARY}\n")
    named = invoke("translate", *MODEL, "-f", source, "--format", "markdown")
    assert (named.text, named.err) == (f"# {LIBRARY_ZH}\n", "")
    markdown = tmp_path / "a.md"
    markdown.write_text(f"{LIBRARY}\n```\n{DOOR}\n```\n")
    assert invoke("translate", *MODEL, "-f", markdown, "--format", "text").text == f"{LIBRARY_ZH}\n```\n{DOOR}\n```\n"


def test_standard_input_and_output() -> None:
    text = json.dumps({"a": LIBRARY, "b": "some-id"})
    outcome = invoke("translate", *MODEL, "-f", "-", "--format", "json", stdin=text.encode())
    assert json.loads(outcome.text) == {"a": LIBRARY_ZH, "b": "some-id"}


def test_several_documents_go_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"{DOOR}\n")
    (tmp_path / "b.json").write_text(json.dumps([STATION]))
    (tmp_path / "out").mkdir()
    outcome = invoke("translate", *MODEL, "-f", tmp_path / "a.md", "-f", tmp_path / "b.json", "-o", tmp_path / "out")
    assert outcome.code == 0
    assert (tmp_path / "out" / "a.md").read_text() == f"{DOOR_ZH}\n"
    assert json.loads((tmp_path / "out" / "b.json").read_text()) == [STATION_ZH]
    error = invoke(
        "translate", *MODEL, "-f", tmp_path / "a.md", "-f", tmp_path / "b.json", "-o", tmp_path / "x"
    ).error()
    assert error == f"2 documents need a folder that exists to be written to; found -o {tmp_path / 'x'}"


def test_warnings_name_the_line(tmp_path: Path) -> None:
    source = tmp_path / "a.md"
    source.write_text(f"{DOOR}\n\n> {LIBRARY}\n")
    outcome = invoke("translate", *MODEL, "--max-new-tokens", "2", "-f", source, "-o", tmp_path / "b.md")
    assert outcome.code == 0
    assert any(line.startswith(f"onnxmt: warning: {source}, line 3: ") for line in outcome.err.splitlines())


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.json", b'{"a": 1,}', (), "{path}: line 1, column 9 is not JSON: "),
        ("a.po", b'msgid "a"\nmsgstr b\n', (), "{path}: line 2: 'b' is no string between quotes"),
        ("a.srt", b"hello", (), "{path}: these are no subtitles in SubRip's format"),
        ("a.md", b"caf\xe9", (), "{path}: byte 4, 0xe9, is not UTF-8"),
        (
            "a.md",
            b"x",
            ("--format", "pdf"),
            "--format pdf is not known; formats are text, markdown, html, srt, po, json",
        ),
        ("a.md", b"x", ("--alternatives", "1", "--beams", "2"), "--alternatives is for lines: a document has one"),
        ("a.json", b'["a b"]', ("--json-path", "x.y"), "{path}: no text in the document is at a path of x.y"),
        ("a.md", b"words", ("-o", "{folder}/none/b.md"), "cannot write {folder}/none/b.md"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(
    name: str, content: bytes, options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    given = ("-o", f"{tmp_path}/out") if "-o" not in options else ()
    outcome = invoke("translate", *MODEL, "-f", path, *given, *(o.replace("{folder}", str(tmp_path)) for o in options))
    last = outcome.err.splitlines()[-1]
    assert outcome.code == 2
    assert last.startswith("onnxmt: error: " + message.format(path=path, folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-f", "a.txt", "--redo"), "--redo is for po documents: it has no effect on lines"),
        (("-f", "a.md", "--no-attributes"), "--no-attributes is for html documents: it has no effect on these"),
        (("-f", "a.md", "--json", "--format", "text"), "--format has no effect with --json"),
        (("-f", "a.txt", "--ray", "--format", "text"), "--format has no effect with --ray"),
    ],
)
def test_flags_without_effect_are_refused(options: tuple[str, ...], message: str) -> None:
    assert invoke("translate", *options).error() == message


def test_a_missing_file_and_no_file() -> None:
    assert "cannot read none.md: No such file" in invoke("translate", *MODEL, "-f", "none.md").err
    assert (
        invoke("translate", "--format", "json", "x").error()
        == "--format needs a file: -f FILE (-f - is standard input)"
    )


LINES = [f"The library opens at {number}." for number in range(160)]


def journal_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.onnxmt-part")


def killed(source: Path, target: Path, *options: str, after: int) -> int:
    """Start a translation, kill the process when `after` translations are kept; how many are."""
    command = (sys.executable, "-m", "onnxmt", "translate", "-f", source, "-o", target, *options)
    with started(*command) as process:
        journal = journal_of(target)
        deadline = time.monotonic() + 60
        while not (journal.exists() and journal.read_bytes().count(b"\n") > after):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return journal.read_bytes().count(b"\n") - 1


@pytest.fixture
def document(tmp_path: Path) -> tuple[Path, Path]:
    source = tmp_path / "long.md"
    source.write_text("\n\n".join(LINES) + "\n")
    return source, tmp_path / "long.zh.md"


def test_a_killed_run_goes_on_where_it_was(document: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the demo model, in a process that is really killed: nothing is lost, nothing is done twice."""
    source, target = document
    kept = killed(source, target, after=10)
    assert not target.exists()
    entries = [json.loads(line) for line in journal_of(target).read_text().splitlines()[1 : kept + 1]]
    before = {entry["source"]: entry["text"] for entry in entries}
    assert len(before) == kept
    with journal_of(target).open("ab") as journal:
        journal.write(b'{"source": "torn')  # as a kill amid a write leaves it
    given = counted(monkeypatch)
    outcome = invoke("translate", "-f", source, "-o", target)
    assert f"onnxmt: {target}: going on with an unfinished run: {kept} translations are there\n" in outcome.err
    assert given() == len(LINES) - kept
    assert target.read_text().count("\n\n") == len(LINES) - 1
    resumed = target.read_text()
    assert not journal_of(target).exists()
    assert sorted(path.name for path in source.parent.iterdir()) == ["long.md", "long.zh.md"]
    paragraphs = resumed.rstrip("\n").split("\n\n")
    assert not set(paragraphs) & set(LINES)
    for line, paragraph in zip(LINES, paragraphs, strict=True):
        assert before.get(hashlib.sha256(line.encode()).hexdigest(), paragraph) == paragraph


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many texts a Translator of this process is given from now on."""
    from onnxmt.runtime.translator import Translator

    real, given = Translator.translate_stream, []

    def stream(self, texts, **options):
        return real(self, (given.append(text) or text for text in texts), **options)

    monkeypatch.setattr(Translator, "translate_stream", stream)
    return lambda: len(given)


def unfinished(document: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> int:
    """A run with the small model that ends in the middle, as if the process had been killed."""
    from onnxmt.commands._journal import DocumentJournal

    keep, count = DocumentJournal.keep, 0

    def stopping(self, text, translation):
        nonlocal count
        keep(self, text, translation)
        count += 1
        if count == 30:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DocumentJournal, "keep", stopping)
        assert invoke("translate", *MODEL, "-f", document[0], "-o", document[1]).code == 2
    return count


def again(document: tuple[Path, Path], *options: str) -> Outcome:
    return invoke(
        "translate", *(options if "--model" in options else (*MODEL, *options)), "-f", document[0], "-o", document[1]
    )


def test_ctrl_c_keeps_what_is_done_and_strict_writes_nothing(document, monkeypatch) -> None:
    assert unfinished(document, monkeypatch) == 30
    given = counted(monkeypatch)
    refused = again(document, "--strict")
    assert refused.code == 1
    assert refused.err.splitlines()[-1] == f"onnxmt: error: --strict: {document[0]} had warnings and was not written"
    assert not document[1].exists()
    assert given() == len(LINES) - 30
    outcome = again(document)
    assert "going on with an unfinished run: 160 translations are there" in outcome.err
    assert given() == len(LINES) - 30
    assert document[1].exists()


def test_a_changed_document_keeps_the_texts_that_are_still_there(document, monkeypatch) -> None:
    unfinished(document, monkeypatch)
    source, _ = document
    source.write_text("A new line.\n\n" + source.read_text())
    given = counted(monkeypatch)
    outcome = again(document)
    assert "the document has changed since the unfinished run; 30 translations are taken over" in outcome.err
    assert given() == len(LINES) - 29


def test_other_settings_and_another_model_begin_anew(document, monkeypatch) -> None:
    unfinished(document, monkeypatch)
    document[0].write_text("\n\n".join(LINES[:40]) + "\n")
    outcome = again(document, "--beams", "2", "--max-new-tokens", "8")
    assert "the unfinished run was made with other settings: everything is translated anew" in outcome.err
    document[0].write_text("\n\n".join(LINES) + "\n")
    unfinished(document, monkeypatch)
    document[0].write_text("\n\n".join(LINES[:5]) + "\n")
    outcome = again(document, "--model", "demo")
    assert "the unfinished run was made with another model: everything is translated anew" in outcome.err
    assert not journal_of(document[1]).exists()


def test_two_runs_do_not_write_one_output(document, monkeypatch) -> None:
    import fcntl

    with journal_of(document[1]).open("a+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert again(document).err.splitlines()[-1] == (
            f"onnxmt: error: another onnxmt is translating into {document[1]}: wait for it, or give another -o"
        )
