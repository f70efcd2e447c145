"""Lines in, lines out: order, endings, streaming, errors of a line and of the input. The golden bundle knows 12 sentences."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from onnxmt.commands import _lines
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from onnxmt.text.layer import TextOptions
from tests.cli.harness import GOLDEN, environment, invoke, run, started

LIBRARY, LIBRARY_ZH = "The library opens at nine.", "图书馆九点开门。"
DOOR, DOOR_ZH = "Please close the door.", "请把门关上。"
STATION, STATION_ZH = "Where is the nearest station?", "最近的车站在哪里？"
MODEL = ("--model", str(GOLDEN))


def test_arguments_are_texts_in_order() -> None:
    outcome = invoke("translate", *MODEL, DOOR, LIBRARY)
    assert (outcome.code, outcome.text, outcome.err) == (0, f"{DOOR_ZH}\n{LIBRARY_ZH}\n", "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f"{LIBRARY}\n\n{DOOR}\n", f"{LIBRARY_ZH}\n\n{DOOR_ZH}\n"),
        (f"{LIBRARY}\r\n\r\n{DOOR}\r\n", f"{LIBRARY_ZH}\r\n\r\n{DOOR_ZH}\r\n"),
        (f"{LIBRARY}\n{DOOR}", f"{LIBRARY_ZH}\n{DOOR_ZH}"),
        (f"{LIBRARY}\n{DOOR}\r", f"{LIBRARY_ZH}\n{DOOR_ZH}\r"),
        ("\n\n\n", "\n\n\n"),
        ("\n", "\n"),
        ("", ""),
        (f"\ufeff{LIBRARY}\n", f"{LIBRARY_ZH}\n"),
    ],
    ids=[
        "newlines",
        "crlf",
        "no last newline",
        "cr at the end",
        "blank",
        "one blank",
        "nothing",
        "mark of the encoding",
    ],
)
def test_line_structure_is_kept(given: str, expected: str) -> None:
    outcome = invoke("translate", *MODEL, stdin=given.encode())
    assert (outcome.code, outcome.out.decode(), outcome.err) == (0, expected, "")


def test_json_is_what_the_translator_says_line_by_line() -> None:
    outcome = invoke("translate", *MODEL, "--json", stdin=f"{LIBRARY}\n\n{DOOR} {STATION}\n".encode())
    with Translator.load(GOLDEN) as translator:
        expected = [translator.translate_detailed(text) for text in (LIBRARY, "", f"{DOOR} {STATION}")]
    assert outcome.code == 0
    for found, translation in zip(outcome.objects, expected, strict=True):
        plain = translation.to_dict()
        assert found.pop("score") == (None if plain["score"] is None else pytest.approx(plain["score"], abs=1e-4))
        for segment in (*found.get("segments", ()), *plain.get("segments", ())):
            segment.pop("score")
        assert found == {key: value for key, value in plain.items() if key != "score"}
    assert outcome.objects[1] == {
        "source": "", "text": "", "score": None, "tokens": [], "finished": True, "warnings": [],
    }  # fmt: skip
    assert outcome.objects[0]["text"] == LIBRARY_ZH


def test_options_reach_the_search() -> None:
    arguments = ("--beams", "3", "--alternatives", "2", "--max-new-tokens", "4", "--no-checks", "--json", LIBRARY)
    outcome = invoke("translate", *MODEL, *arguments)
    with Translator.load(GOLDEN) as translator:
        expected = translator.translate_detailed(
            LIBRARY,
            options=TranslateOptions(beams=3, alternatives=2, max_new_tokens=4, text=TextOptions(checks=None)),
        )
    assert outcome.objects[0]["tokens"] == list(expected.tokens)
    assert [a["tokens"] for a in outcome.objects[0]["alternatives"]] == [list(a.tokens) for a in expected.alternatives]
    assert [warning["kind"] for warning in outcome.objects[0]["warnings"]] == ["length_cap"]
    assert outcome.err == ""


def test_alternatives_stand_beside_the_best_so_that_lines_stay_lines() -> None:
    outcome = invoke("translate", *MODEL, "--beams", "3", "--alternatives", "2", LIBRARY, DOOR)
    first, second = outcome.lines
    assert first.split("\t")[0] == LIBRARY_ZH
    assert second.split("\t")[0] == DOOR_ZH
    assert len(first.split("\t")) == len(second.split("\t")) == 3


def test_sampling_repeats_by_its_seed_however_the_lines_arrive(tmp_path: Path) -> None:
    """Windows of 4, 8, … lines in a file, all lines at once as arguments: the same draws."""
    texts = [DOOR, LIBRARY, STATION] * 5
    (tmp_path / "in").write_text("\n".join(texts) + "\n")
    options = (*MODEL, "--sampling", "--temperature", "3.0", "--top-k", "0", "--seed", "7")
    by_file = invoke("translate", *options, "-f", tmp_path / "in")
    assert by_file.lines == invoke("translate", *options, *texts).lines
    assert by_file.lines != invoke("translate", *options[:-1], "8", *texts).lines
    assert len(set(by_file.lines)) > 3


def test_sampling_options_without_sampling_are_refused() -> None:
    assert invoke("translate", *MODEL, "--seed", "1", "--top-p", "0.5", "x").error() == (
        "--top-p, --seed have no effect without --sampling"
    )


def test_warnings_go_to_standard_error_one_line_each() -> None:
    outcome = invoke(
        "translate", *MODEL, "--max-new-tokens", "2", "--no-checks", stdin=f"{LIBRARY}\n\n{DOOR}\n".encode()
    )
    assert outcome.code == 0
    assert len(outcome.lines) == 3
    first, second = outcome.err.splitlines()
    assert first.startswith("onnxmt: warning: standard input, line 1: the output was cut at 2 tokens")
    assert second.startswith("onnxmt: warning: standard input, line 3: ")


LONG = " ".join(["nine"] * 200)


def test_an_over_long_line_has_an_error_and_the_rest_continue() -> None:
    outcome = invoke("translate", *MODEL, "--no-split", stdin=f"{LIBRARY}\n{LONG}\n{DOOR}\n".encode())
    assert outcome.code == 1
    assert outcome.text == f"{LIBRARY_ZH}\n\n{DOOR_ZH}\n"
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("onnxmt: error: standard input, line 2: the text is ")


def test_an_over_long_line_in_json() -> None:
    outcome = invoke("translate", *MODEL, "--no-split", "--json", stdin=f"{LONG}\n{DOOR}\n".encode())
    assert outcome.code == 1
    first, second = outcome.objects
    assert (first["source"], first["text"], first["score"], first["tokens"]) == (LONG, "", None, [])
    assert "tokens long and the model takes at most" in first["error"]
    assert second["text"] == DOOR_ZH
    assert "error" not in second
    assert outcome.err == ""


def test_no_split_feeds_the_line_as_it_is() -> None:
    text = f"  {LIBRARY} {DOOR} "
    outcome = invoke("translate", *MODEL, "--no-split", "--json", text)
    with Translator.load(GOLDEN) as translator:
        expected = translator.translate_detailed(text, options=TranslateOptions(split=False))
    assert outcome.objects[0]["source"] == text
    assert outcome.objects[0]["tokens"] == list(expected.tokens)
    assert "segments" not in outcome.objects[0]


def test_a_line_of_more_than_a_mebibyte_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "LONGEST_LINE", 70_000)  # beyond one read of 65,536 bytes
    given = f"{DOOR}\n".encode() + b"x" * 150_000 + f"\n{LIBRARY}".encode()
    outcome = invoke("translate", *MODEL, stdin=given)
    assert outcome.code == 1
    assert outcome.text == f"{DOOR_ZH}\n\n{LIBRARY_ZH}"
    assert outcome.err == (
        "onnxmt: error: standard input, line 2: the line is longer than 70000 bytes: break it into lines\n"
    )


def test_what_is_not_utf8_is_named_by_line_and_byte_after_the_lines_before_it() -> None:
    bad = "中".encode("gb18030")
    outcome = invoke("translate", *MODEL, stdin=f"{LIBRARY}\n{DOOR}\nab".encode() + bad + b"\n" + b"more\n")
    assert outcome.text == f"{LIBRARY_ZH}\n{DOOR_ZH}\n"
    place = len(f"{LIBRARY}\n{DOOR}\nab") + 1
    assert outcome.error().startswith(
        f"standard input, line 3: byte {place} of the input, 0x{bad[0]:02x}, is not UTF-8"
    )


def test_an_argument_that_is_not_utf8_is_named() -> None:
    outcome = run("translate", *MODEL, "fine", os.fsdecode(b"caf\xe9"))
    assert outcome.error().startswith("text 2 on the command line is not UTF-8")


def test_files_follow_one_another_and_keep_their_lines_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"{LIBRARY}\n{DOOR}")  # without its last newline
    (tmp_path / "b").write_text(f"{STATION}")
    outcome = invoke("translate", *MODEL, "-f", tmp_path / "a", "-f", "-", "-f", tmp_path / "b", stdin=LIBRARY.encode())
    assert outcome.text == f"{LIBRARY_ZH}\n{DOOR_ZH}\n{LIBRARY_ZH}\n{STATION_ZH}"


def test_all_unreadable_files_are_named_before_any_work(tmp_path: Path) -> None:
    message = invoke("translate", "--model", "/no/bundle", "-f", tmp_path / "none", "-f", tmp_path).error()
    assert message == f"cannot read {tmp_path / 'none'}: no such file; {tmp_path}: it is a folder"


def test_texts_and_files_at_once_are_refused(tmp_path: Path) -> None:
    assert "not both" in invoke("translate", "x", "-f", tmp_path / "f").error()


def test_a_terminal_without_a_text_is_told_what_to_type() -> None:
    message = invoke("translate", *MODEL).error()
    assert message.startswith('nothing to translate: give a text (onnxmt translate "Good morning."), a file (-f FILE)')


def test_output_file_appears_whole(tmp_path: Path) -> None:
    path, output = tmp_path / "text", tmp_path / "text.zh"
    path.write_text(f"{LIBRARY}\n{DOOR}\n")
    outcome = invoke("translate", *MODEL, "-f", path, "-o", output)
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "")
    assert output.read_text(encoding="utf-8") == f"{LIBRARY_ZH}\n{DOOR_ZH}\n"
    assert sorted(tmp_path.iterdir()) == [path, output]


def test_a_failed_run_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    outcome = invoke("translate", *MODEL, "-o", path, stdin=f"{LIBRARY}\n".encode() + b"\xff\n")
    assert "is not UTF-8" in outcome.error()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["no/such/folder/out", "."])
def test_an_output_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    message = invoke("translate", *MODEL, "-o", tmp_path / name, "x").error()
    assert str(tmp_path / name) in message


def test_output_to_a_pipe_or_device_is_written_straight() -> None:
    assert invoke("translate", *MODEL, LIBRARY, "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_full_disk_is_one_line() -> None:
    assert invoke("translate", *MODEL, LIBRARY, "-o", "/dev/full").error() == (
        "cannot write /dev/full: No space left on device"
    )
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "onnxmt", "translate", *MODEL, LIBRARY]
        done = subprocess.run(command, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == b"onnxmt: error: cannot write to standard output: No space left on device\n"


def test_lines_stream_through_a_pipe_one_by_one() -> None:
    """Each answer comes before the next line is given: nothing waits for a full batch."""
    with started(sys.executable, "-m", "onnxmt", "translate", *MODEL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for source, target in ((LIBRARY, LIBRARY_ZH), (DOOR, DOOR_ZH), (STATION, STATION_ZH)):
            process.stdin.write(f"{source}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == f"{target}\n"
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_leaves_is_no_error() -> None:
    with started(sys.executable, "-m", "onnxmt", "translate", *MODEL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(f"{LIBRARY}\n".encode())
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(f"{DOOR}\n".encode() * 50)
        process.stdin.close()
        process.stdin = process.stdout = None
        err = process.stderr.read()
        assert process.wait(timeout=60) == 0
    assert err == b""


def test_utf8_comes_out_whatever_the_locale_is() -> None:
    outcome = run("translate", *MODEL, LIBRARY, env=environment(PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0"))
    assert outcome.text == f"{LIBRARY_ZH}\n"


def test_a_broken_bundle_is_one_line(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN, tmp_path / "b"))
    (folder / "weights.bin").unlink()
    assert "weights.bin" in invoke("translate", "--model", folder, "x").error()
    (folder / "manifest.json").write_text("{")
    assert "is not valid JSON" in invoke("translate", "--model", folder, "x").error()


def test_an_unknown_language_is_wrong_use() -> None:
    assert (
        "target language 'fr' is not one of this model's" in invoke("translate", *MODEL, "--target", "fr", "x").error()
    )


def test_an_endless_input_is_read_as_it_is_needed() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read1(self, size: int) -> bytes:
            self.given += size
            return (b"a line of text\n" * (size // 15 + 1))[:size]

    stream = Endless()
    windows = _lines._windows(stream, "x", _lines._Growth())  # type: ignore[arg-type]
    assert [len(next(windows)) for _ in range(8)] == [4, 8, 16, 32, 64, 128, 256, 512]
    assert stream.given == 2**16
    for _ in range(100):
        assert len(next(windows)) <= 1024
    assert stream.given <= 27 * 2**16


def test_windows_never_wait_and_never_lose_a_line() -> None:
    """The reader alone, over odd cuts of the same bytes."""
    data = f"{LIBRARY}\r\n\n{DOOR}\n\u4e2d\u6587\n{STATION}".encode()

    class Trickle(io.RawIOBase):
        def __init__(self, step: int) -> None:
            self.left, self.step = data, step

        def readable(self) -> bool:
            return True

        def read1(self, _size: int) -> bytes:
            piece, self.left = self.left[: self.step], self.left[self.step :]
            return piece

    for step in (1, 2, 3, 7, len(data)):
        growth = _lines._Growth()
        lines = [line for window in _lines._windows(Trickle(step), "x", growth) for line in window]  # type: ignore[arg-type]
        assert [line.text for line in lines] == [LIBRARY, "", DOOR, "中文", STATION]
        assert [line.ending for line in lines] == [b"\r\n", b"\n", b"\n", b"\n", b""]
        assert sum(line.bytes for line in lines) == len(data)
        assert json.dumps([line.where for line in lines]) == json.dumps([f"x, line {n}" for n in range(1, 6)])


def test_throughput_gives_the_same_lines() -> None:
    alone = invoke("translate", "--model", GOLDEN, "Yes.", "It rained.", "The library opens at nine.")
    many = invoke(
        "translate", "--model", GOLDEN, "--mode", "throughput", "Yes.", "It rained.", "The library opens at nine."
    )

    assert alone.code == many.code == 0
    assert many.lines == alone.lines
    assert "mode is 'fast'; allowed: latency, throughput" in invoke("translate", "--mode", "fast", "Yes.").error()


@pytest.mark.parametrize("name", ["in.txt", "in.md"])
def test_an_input_is_never_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("Good morning.\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(path)
    for output in (path, tmp_path / "link", tmp_path / "." / name):
        assert "which would be lost" in invoke("translate", "-f", path, "-o", output).error()
    assert path.read_text(encoding="utf-8") == "Good morning.\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["link", name])
