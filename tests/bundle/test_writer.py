# ruff: noqa: PT012, SIM117  (how a `with` block ends is what these tests are about)
from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxmt.bundle import BundleWriter, check_output, read_bundle, update_manifest
from onnxmt.errors import BundleFormatError, OutputError
from onnxmt.manifest import Manifest

Fill = Callable[..., Manifest]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_commit_writes_hashes_and_leaves_only_the_bundle(tmp_path: Path, fill: Fill) -> None:
    with BundleWriter(tmp_path / "out") as writer:
        manifest = fill(writer)
        (writer.folder / "sub").mkdir()
        (writer.folder / "sub" / "card.md").write_text("card")
        assert writer.folder.parent == tmp_path
        assert ".onnxmt-partial-" in writer.folder.name
        bundle = writer.commit(manifest)

    assert names(tmp_path) == ["out"]
    assert bundle.folder == tmp_path / "out"
    by_path = {entry.path: entry for entry in bundle.manifest.files}
    assert list(by_path) == sorted(by_path)
    assert by_path["sub/card.md"].bytes == 4
    assert by_path["sub/card.md"].sha256 == hashlib.sha256(b"card").hexdigest()
    assert "manifest.json" not in by_path
    assert read_bundle(tmp_path / "out") == bundle
    assert bundle.size == 5 * 3 + 4


def test_the_bundle_is_readable_by_others_as_the_umask_allows(tmp_path: Path, fill: Fill) -> None:
    before = os.umask(0o022)
    try:
        with BundleWriter(tmp_path / "out") as writer:
            writer.commit(fill(writer))
    finally:
        os.umask(before)

    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out" / "manifest.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_any_exception_removes_everything(tmp_path: Path, fill: Fill, error: BaseException) -> None:
    with pytest.raises(type(error)), BundleWriter(tmp_path / "a" / "b" / "out") as writer:
        fill(writer)
        raise error

    assert names(tmp_path) == []


def test_leaving_without_commit_removes_everything(tmp_path: Path, fill: Fill) -> None:
    with BundleWriter(tmp_path / "out") as writer:
        fill(writer)

    assert names(tmp_path) == []


def test_a_missing_file_is_found_before_the_rename(tmp_path: Path, fill: Fill) -> None:
    with pytest.raises(BundleFormatError, match=r"lacks weights\.bin"), BundleWriter(tmp_path / "out") as writer:
        manifest = fill(writer)
        (writer.folder / "weights.bin").unlink()
        writer.commit(manifest)

    assert names(tmp_path) == []


def test_links_are_not_packed(tmp_path: Path, fill: Fill) -> None:
    with pytest.raises(OutputError, match=r"link\.spm is not a plain file"), BundleWriter(tmp_path / "out") as writer:
        manifest = fill(writer)
        (writer.folder / "link.spm").symlink_to("/etc/hostname")
        writer.commit(manifest)

    assert names(tmp_path) == []


def test_an_empty_folder_is_filled(tmp_path: Path, fill: Fill) -> None:
    (tmp_path / "out").mkdir()
    with BundleWriter(tmp_path / "out") as writer:
        writer.commit(fill(writer))

    assert "manifest.json" in names(tmp_path / "out")


def test_a_filled_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.doc").write_text("precious")

    with pytest.raises(OutputError, match="exists and is not empty: name another one, or pass --overwrite"):
        BundleWriter(tmp_path / "out").__enter__()
    with pytest.raises(OutputError, match="exists and is not empty"):
        check_output(tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_overwrite_replaces_a_bundle(tmp_path: Path, fill: Fill, golden: Path) -> None:
    with BundleWriter(golden, overwrite=True) as writer:
        writer.commit(fill(writer, "newer"))

    assert (golden / "weights.bin").read_text() == "newer"
    assert "vocab.json" not in names(golden)
    assert names(tmp_path) == ["golden"]


def test_overwrite_never_deletes_what_is_not_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.doc").write_text("precious")

    with pytest.raises(OutputError, match=r"is not a bundle \(no manifest\.json\), so it is not replaced"):
        BundleWriter(tmp_path / "out", overwrite=True).__enter__()
    assert (tmp_path / "out" / "thesis.doc").read_text() == "precious"


def test_a_failed_overwrite_keeps_the_old_bundle(tmp_path: Path, fill: Fill, golden: Path) -> None:
    before = {name: (golden / name).read_bytes() for name in names(golden)}

    with pytest.raises(RuntimeError), BundleWriter(golden, overwrite=True) as writer:
        fill(writer)
        raise RuntimeError

    assert {name: (golden / name).read_bytes() for name in names(golden)} == before
    assert names(tmp_path) == ["golden"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_swap_that_fails_halfway_brings_the_old_bundle_back(
    tmp_path: Path, fill: Fill, golden: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before = read_bundle(golden)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".onnxmt-partial-" in self.name:
            raise error
        return rename(self, target)

    with pytest.raises((OutputError, KeyboardInterrupt)), BundleWriter(golden, overwrite=True) as writer:
        manifest = fill(writer)
        monkeypatch.setattr(Path, "rename", failing)
        writer.commit(manifest)

    assert read_bundle(golden) == before
    assert names(tmp_path) == ["golden"]


def test_a_folder_filled_meanwhile_is_not_touched(tmp_path: Path, fill: Fill) -> None:
    with pytest.raises(OutputError, match="was filled by another program meanwhile"):
        with BundleWriter(tmp_path / "out") as writer:
            manifest = fill(writer)
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "theirs").write_text("theirs")
            writer.commit(manifest)

    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["theirs"]


def test_two_writers_of_one_output_do_not_mix(tmp_path: Path, fill: Fill) -> None:
    with BundleWriter(tmp_path / "out") as first:
        manifest = fill(first, "first")
        with pytest.raises(OutputError, match="meanwhile"), BundleWriter(tmp_path / "out") as second:
            other = fill(second, "second")
            first.commit(manifest)
            second.commit(other)

    assert (tmp_path / "out" / "weights.bin").read_text() == "first"
    assert names(tmp_path) == ["out"]


def test_a_writer_commits_once(tmp_path: Path, fill: Fill) -> None:
    with BundleWriter(tmp_path / "out") as writer:
        manifest = fill(writer)
        writer.commit(manifest)
        with pytest.raises(OutputError, match="was already written"):
            writer.commit(manifest)

    assert "manifest.json" in names(tmp_path / "out")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("file")

    with pytest.raises(OutputError, match="is a file; a bundle is a folder"):
        check_output(tmp_path / "out")
    with pytest.raises(OutputError, match="out is not a folder"):
        check_output(tmp_path / "out" / "below")
    with pytest.raises(OutputError, match="out is not a folder"):
        BundleWriter(tmp_path / "out" / "a" / "b").__enter__()


def test_the_current_folder_and_mount_points_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(OutputError, match="is the current folder, which cannot be replaced: name a new folder inside"):
        check_output(".")
    with pytest.raises(OutputError, match="is a mount point"):
        check_output("/", overwrite=True)


def test_a_link_to_a_bundle_stays_a_link(tmp_path: Path, fill: Fill, golden: Path) -> None:
    (tmp_path / "current").symlink_to(golden.name)

    with BundleWriter(tmp_path / "current", overwrite=True) as writer:
        writer.commit(fill(writer, "newer"))

    assert (tmp_path / "current").is_symlink()
    assert (golden / "weights.bin").read_text() == "newer"


@pytest.mark.parametrize("name", ["a\0b", "circle"])
def test_a_path_that_cannot_be_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "circle").symlink_to("circle")

    with pytest.raises(OutputError, match=r"is not a path that can be used|is a file"):
        BundleWriter(tmp_path / name)
        check_output(tmp_path / name)


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="File name too long"):
        BundleWriter(tmp_path / ("n" * 250)).__enter__()
    assert names(tmp_path) == []


def test_a_folder_without_write_permission_is_refused_before_any_work() -> None:
    with tempfile.TemporaryDirectory(prefix="onnxmt-test-") as name:
        Path(name).chmod(0o755)
        closed = Path(name) / "closed"
        closed.mkdir(mode=0o555)
        child = os.fork()
        if child == 0:  # root may write anywhere: become somebody else
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                check_output(closed / "out")
                os._exit(0)
            except OutputError as error:
                os._exit(3 if str(error).endswith(f"no permission to write in {closed}") else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (errno.ENOSPC, "No space left on device: free some space or name another disk"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "the file system is read-only: name another place"),
    ],
)
def test_a_full_disk_while_files_are_written_is_one_line(tmp_path: Path, fill: Fill, code: int, fix: str) -> None:
    with pytest.raises(OutputError) as caught, BundleWriter(tmp_path / "out") as writer:
        fill(writer)
        raise OSError(code, os.strerror(code), "weights.bin")

    assert fix in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_other_os_errors_pass_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"), BundleWriter(tmp_path / "out"):
        raise FileNotFoundError(errno.ENOENT, "gone", "checkpoint/model.safetensors")


def test_a_really_full_output_leaves_nothing(tmp_path: Path, fill: Fill) -> None:
    """The limit on a file's size stands in for a full disk: the kernel refuses the write in the middle."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            with BundleWriter(tmp_path / "out") as writer:
                manifest = fill(writer)
                (writer.folder / "weights.bin").write_bytes(bytes(10_000))
                writer.commit(manifest)
            os._exit(0)
        except OutputError as error:
            os._exit(3 if "ulimit -f" in str(error) else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert names(tmp_path) == []


def test_a_disk_that_is_full_for_the_manifest_leaves_nothing(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(self: Path, *arguments: object, **options: object) -> int:
        if self.name == "manifest.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputError, match="No space left on device: free some space"):
        with BundleWriter(tmp_path / "out") as writer:
            writer.commit(fill(writer))

    assert names(tmp_path) == []


KILLED = """
import sys, time
from pathlib import Path
from onnxmt.bundle import BundleWriter
with BundleWriter(sys.argv[1]) as writer:
    (writer.folder / "weights.bin").write_bytes(bytes(1000))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("sent", "left"), [(signal.SIGINT, 0), (signal.SIGKILL, 1)])
def test_a_real_interrupt_cleans_up_and_a_kill_leaves_only_what_is_recognisable(
    tmp_path: Path, sent: signal.Signals, left: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "out")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(sent)
    process.communicate(timeout=30)

    assert len(names(tmp_path)) == left
    assert all(name.startswith(".out.onnxmt-partial-") for name in names(tmp_path))


def test_update_manifest_replaces_it_in_one_step(golden: Path) -> None:
    bundle = read_bundle(golden)
    (golden / "report.html").write_text("<p>report</p>")
    manifest = Manifest.from_dict({**bundle.manifest.to_dict(), "speed": {"p99_ms": 12.5}})

    updated = update_manifest(bundle, manifest, written=["report.html"])

    assert read_bundle(golden) == updated
    assert updated.manifest.speed == {"p99_ms": 12.5}
    assert {e.path for e in updated.manifest.files} - {e.path for e in bundle.manifest.files} == {"report.html"}
    assert [n for n in names(golden) if "partial" in n] == []


def test_update_manifest_that_fails_keeps_the_old_one(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = read_bundle(golden)

    def failing(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OutputError, match="No space left"):
        update_manifest(bundle, bundle.manifest)
    with pytest.raises(OutputError, match=r"No such file"):
        update_manifest(bundle, bundle.manifest, written=["absent.html"])

    assert read_bundle(golden) == bundle
    assert [n for n in names(golden) if "partial" in n] == []


def test_readers_never_see_a_half_written_manifest(golden: Path) -> None:
    bundle = read_bundle(golden)
    child = os.fork()
    if child == 0:
        try:
            for number in range(50):
                update_manifest(bundle, Manifest.from_dict({**bundle.manifest.to_dict(), "speed": {"run": number}}))
            os._exit(0)
        finally:
            os._exit(1)
    reads = 0
    while os.waitpid(child, os.WNOHANG)[0] == 0 and reads < 100_000:
        json.loads((golden / "manifest.json").read_text(encoding="utf-8"))
        reads += 1
        time.sleep(0)
    assert reads > 0
    assert read_bundle(golden).manifest.speed == {"run": 49}
