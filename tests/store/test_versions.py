"""Adding, promoting, rolling back, removing, collecting: what is allowed, what is refused, what is kept."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading
from pathlib import Path
from unittest import mock

import pytest

from onnxmt.bundle import BundleWriter, read_bundle, update_manifest
from onnxmt.errors import (
    BundleFileAlteredError,
    ModelNotFoundError,
    OutputError,
    PromotionRefusedError,
    StoreError,
    UsageError,
)
from onnxmt.manifest import Verification, VerificationRow
from onnxmt.store import shelf as shelf_module
from onnxmt.store.adding import AddOptions, add
from onnxmt.store.cleaning import check, collect, remove
from onnxmt.store.figures import PromoteLimits
from onnxmt.store.files import abandoned, locked, owned_folder
from onnxmt.store.promoting import PromoteOptions, clear, promote, rollback
from onnxmt.store.shelf import Shelf
from tests.store.bundles import GOLDEN, make_bundle, quality, speed

QUICK = AddOptions(name="m", run=False)


def added(tmp_path: Path, number: int, **manifest: object) -> str:
    make_bundle(tmp_path / str(number), marker=str(number), **manifest)
    return add(tmp_path / str(number), options=QUICK).name.ref


def test_adding_copies_checks_and_numbers(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a", marker="a")
    first, second = (add(tmp_path / "a", options=QUICK) for _ in range(2))
    assert (str(first.name), str(second.name)) == ("m:1", "m:2")
    assert first.same_as == ()
    assert second.same_as == ("1",)
    assert read_bundle(second.folder).size == second.bytes
    assert not os.access(second.folder / "weights.bin", os.W_OK) or os.geteuid() == 0
    assert (second.folder / "weights.bin").stat().st_nlink == 1  # onnx refuses weights with several links
    (tmp_path / "a" / "marker.txt").write_text("changed later")
    assert read_bundle("m:1").path("marker.txt").read_text() == "a"
    event = shelf.history()[1]
    assert (event.action, event.version, event.evidence["same_as"]) == ("add", "2", ["1"])
    assert "@" in event.who


def test_a_damaged_bundle_is_not_added(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a")
    (tmp_path / "a" / "marker.txt").write_text("x")
    with pytest.raises(BundleFileAlteredError):
        add(tmp_path / "a", options=QUICK)
    assert not shelf.folder.exists()


def test_what_cannot_translate_is_not_added(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a")
    broken = read_bundle(tmp_path / "a")
    (tmp_path / "a" / "encoder.onnx").write_bytes(b"no graph")
    update_manifest(broken, broken.manifest, written=["encoder.onnx"])
    with pytest.raises(Exception, match="encoder"):
        add(tmp_path / "a", options=AddOptions(name="m"))
    assert shelf.state().versions == {}
    assert list((shelf.folder / "versions").iterdir()) == []


def test_a_name_is_used_once(shelf: Shelf, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a")
    options = AddOptions(name="m", version="v1", run=False)
    add(tmp_path / "a", options=options)
    with pytest.raises(StoreError, match=r"m:v1 is there already.*the next is 1"):
        add(tmp_path / "a", options=options)
    remove(shelf, "v1")
    with pytest.raises(StoreError, match="was there and was removed"):
        add(tmp_path / "a", options=options)
    with pytest.raises(UsageError, match=r"version '\.\./x' cannot be used"):
        AddOptions(version="../x")


def test_a_disk_that_fills_leaves_nothing(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)
    before = shelf.state()
    make_bundle(tmp_path / "b", marker="b")
    full = OSError(errno.ENOSPC, "No space left on device", "marker.txt")
    with (
        mock.patch("onnxmt.store.adding.copy_file", side_effect=full),
        pytest.raises(StoreError, match="No space left"),
    ):
        add(tmp_path / "b", options=QUICK)
    with (
        mock.patch.object(shelf_module, "write_whole", side_effect=full),
        pytest.raises(StoreError, match="No space left"),
    ):
        add(tmp_path / "b", options=QUICK)
    assert shelf.state() == before
    assert add(tmp_path / "b", options=QUICK).name.ref == "2"  # over what the second attempt left


def test_killed_between_the_event_and_the_state(shelf: Shelf, tmp_path: Path) -> None:
    for number in (1, 2):
        added(tmp_path, number)
    promote(shelf, "1")
    real = shelf_module.write_whole

    def dies(path: Path, text: str) -> None:
        if path.name == "state.json":
            raise KeyboardInterrupt
        real(path, text)

    with mock.patch.object(shelf_module, "write_whole", dies), pytest.raises(KeyboardInterrupt):
        promote(shelf, "2")
    assert shelf.state().aliases["production"].version == "1"
    assert [event.version for event in shelf.history() if event.action == "promote"] == ["1"]
    promote(shelf, "2", options=PromoteOptions(reason="again"))
    assert [event.reason for event in shelf.history() if event.action == "promote"] == [None, "again"]


def test_promote_moves_stages_and_keeps_evidence(shelf: Shelf, tmp_path: Path) -> None:
    for number in (1, 2):
        added(tmp_path, number, quality=quality(bleu=30 + number), speed=speed(20))
    assert shelf.state().stage_of("1") == "local"
    promote(shelf, "1", options=PromoteOptions(alias="staging"))
    assert shelf.state().stage_of("1") == "staging"
    promote(shelf, "staging")
    assert shelf.state().stage_of("1") == "production"
    done = promote(shelf, "2", options=PromoteOptions(reason="better"))
    assert (done.version, done.before) == ("2", "1")
    event = shelf.history()[-1]
    assert (event.action, event.alias, event.before, event.reason) == ("promote", "production", "1", "better")
    assert event.evidence["against"] == "1"
    assert event.evidence["stage"] == "production"
    assert event.evidence["figures"]["bleu"] == 32
    assert [check["passed"] for check in event.evidence["checks"]] == [True, True, True, True]
    assert promote(shelf, "2").event is None
    assert len(shelf.history()) == 5


@pytest.mark.parametrize(
    ("worse", "said"),
    [
        ({"quality": quality(gate="missed")}, "its quality gate was missed"),
        ({"quality": quality(bleu=29.4)}, r"BLEU: 29\.4, now 30: beyond the limit of 0\.5"),
        ({"quality": quality(chrf=24.4)}, r"chrF: 24\.4, now 25: beyond"),
        ({"speed": speed(25)}, r"P99 ms: 25, now 20: beyond the limit of 0\.2"),
    ],
)
def test_what_is_worse_is_refused_unless_forced(
    shelf: Shelf, tmp_path: Path, worse: dict[str, object], said: str
) -> None:
    added(tmp_path, 1, quality=quality(), speed=speed(20))
    added(tmp_path, 2, **{"quality": quality(), "speed": speed(20), **worse})
    promote(shelf, "1")
    with pytest.raises(PromotionRefusedError, match=said):
        promote(shelf, "2")
    assert shelf.state().aliases["production"].version == "1"
    with pytest.raises(UsageError, match="say why with --reason"):
        PromoteOptions(force=True, reason=" ")
    promote(shelf, "2", options=PromoteOptions(force=True, reason="wanted"))
    event = shelf.history()[-1]
    assert (event.forced, event.reason) == (True, "wanted")
    assert len(event.evidence["faults"]) == 1


def test_a_failed_verification_and_a_large_version_are_refused(shelf: Shelf, tmp_path: Path) -> None:
    row = VerificationRow(layer="x", compared=1, different=1, max_abs_error=1.0, cosine=0.5, limit=1e-4, passed=False)
    added(tmp_path, 1, verification=Verification(status="live", judge={}, rows=(row,)))
    with pytest.raises(PromotionRefusedError, match="its verification failed"):
        promote(shelf, "1")
    added(tmp_path, 2)
    promote(shelf, "2")
    make_bundle(tmp_path / "big", marker="x" * 3_000_000)
    add(tmp_path / "big", options=QUICK)
    with pytest.raises(PromotionRefusedError, match=r"bytes: .* beyond the limit of 0\.5"):
        promote(shelf, "3")
    promote(shelf, "3", options=PromoteOptions(limits=PromoteLimits(max_size_growth=100)))


def test_figures_of_other_sets_and_machines_are_not_compared(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1, quality=quality(), speed=speed(20))
    added(tmp_path, 2, quality=quality(bleu=1, chrf=1, sha256="b"), speed=speed(900, cpu="another"))
    promote(shelf, "1")
    done = promote(shelf, "2")
    assert [check.passed for check in done.checks] == [None, None, None, True]
    assert any("measured on other sets" in note for note in done.notes)


def test_a_canary_is_compared_with_production(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1, quality=quality(bleu=30))
    added(tmp_path, 2, quality=quality(bleu=20))
    promote(shelf, "1")
    with pytest.raises(PromotionRefusedError, match="m:2 is not promoted to canary beside m:1"):
        promote(shelf, "2", options=PromoteOptions(alias="canary"))


def test_a_damaged_version_gets_no_alias(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)
    file = shelf.version_folder("1") / "marker.txt"
    file.chmod(0o644)
    file.write_text("2")
    with pytest.raises(BundleFileAlteredError):
        promote(shelf, "1")
    assert [one.fault is None for one in check(shelf)] == [False]


def test_rollback_goes_back_step_by_step(shelf: Shelf, tmp_path: Path) -> None:
    for number in range(1, 5):
        promote(shelf, added(tmp_path, number))
    assert rollback(shelf, reason="wrong numbers").version == "3"
    assert rollback(shelf).version == "2"
    promote(shelf, "4")
    remove(shelf, "3")
    with pytest.raises(StoreError, match=r"never meant '3', or it was removed; earlier versions: 2, 1"):
        rollback(shelf, to="3")
    assert rollback(shelf, to="1").before == "4"
    with pytest.raises(StoreError, match="no earlier version to return to"):
        rollback(shelf)
    assert [event.version for event in shelf.history() if event.action == "rollback"] == ["3", "2", "1"]


def test_an_alias_is_cleared_only_if_it_still_means_that(shelf: Shelf, tmp_path: Path) -> None:
    for number in (1, 2):
        added(tmp_path, number)
    promote(shelf, "1", options=PromoteOptions(alias="canary"))
    assert clear(shelf, "canary", expected="2") is None
    event = clear(shelf, "canary", expected="1", reason="errors", evidence={"requests": 20})
    assert event is not None
    assert (event.before, event.version, event.evidence) == ("1", None, {"requests": 20})
    assert clear(shelf, "canary", expected="1") is None
    with pytest.raises(ModelNotFoundError):
        clear(shelf, "canary")
    with pytest.raises(StoreError, match="moved, never taken away"):
        clear(shelf, "production")


def test_an_alias_and_a_version_share_no_name(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)
    with pytest.raises(StoreError, match="'1' is a version of m"):
        promote(shelf, "1", options=PromoteOptions(alias="1"))
    promote(shelf, "1", options=PromoteOptions(alias="2"))
    assert added(tmp_path, 3) == "3"
    with pytest.raises(StoreError, match="m:2 is an alias of version 1"):
        add(tmp_path / "3", options=AddOptions(name="m", version="2", run=False))
    with pytest.raises(UsageError, match="alias 'a/b' cannot be used"):
        PromoteOptions(alias="a/b")


def test_remove_refuses_what_is_in_use(shelf: Shelf, tmp_path: Path) -> None:
    for number in (1, 2):
        added(tmp_path, number)
    promote(shelf, "1")
    with pytest.raises(StoreError, match="m:1 is production, so it is not removed"):
        remove(shelf, "1")
    with pytest.raises(StoreError, match="m:production is an alias of version 1"):
        remove(shelf, "production")
    remove(shelf, "2", reason="old")
    assert list(shelf.state().versions) == ["1"]


def test_gc_keeps_the_latest_and_what_aliases_need(shelf: Shelf, tmp_path: Path) -> None:
    for number in range(1, 7):
        added(tmp_path, number)
    promote(shelf, "1")
    promote(shelf, "2")
    orphan = shelf.folder / "versions" / "77"
    orphan.mkdir()
    found = collect(shelf, grace=0, keep=2)
    assert found.versions == ("3", "4")
    assert found.leftovers == ("77",)
    assert list(shelf.state().versions) == ["1", "2", "5", "6"]
    assert sorted(path.name for path in (shelf.folder / "versions").iterdir()) == ["1", "2", "5", "6"]
    assert rollback(shelf).version == "1"


def test_gc_leaves_a_running_add_alone(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)
    folder = shelf.folder / "versions" / ".tmp-1-x"
    with owned_folder(folder):
        os.utime(folder, (0, 0))
        assert not abandoned(folder)
        assert collect(shelf, grace=0).leftovers == ()
        assert folder.is_dir()
    folder.mkdir()
    os.utime(folder, (0, 0))
    assert collect(shelf, grace=0).leftovers == (".tmp-1-x",)


def test_a_version_never_changes(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)
    bundle = read_bundle("m:1")
    with pytest.raises(OutputError, match="m:1 is a version in the store, which never changes"):
        update_manifest(bundle, dataclasses.replace(bundle.manifest, speed={}))
    with pytest.raises(OutputError, match="never changes"):
        BundleWriter(bundle.folder, overwrite=True)
    (tmp_path / "link").symlink_to(bundle.folder)
    with pytest.raises(OutputError, match="never changes"):
        BundleWriter(tmp_path / "link", overwrite=True)


def test_the_lock_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    path, order, inside = tmp_path / "lock", [], threading.Event()

    def second() -> None:
        inside.wait()
        with locked(path, seconds=30):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with locked(path, seconds=1):
        inside.set()
        with pytest.raises(StoreError, match="another process has been changing"), locked(path, seconds=0):
            pass
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_state_that_cannot_be_read_is_named(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)
    text = shelf.state_path.read_text()
    for broken, said in (
        (text[:50], "cannot be read"),
        (json.dumps({"format": 9}), "format 9; this onnxmt reads format 1"),
    ):
        shelf.state_path.write_text(broken)
        with pytest.raises(StoreError, match=said):
            read_bundle("m:1")


def test_two_writers_at_once_both_count(shelf: Shelf, tmp_path: Path) -> None:
    added(tmp_path, 1)

    def work(number: int) -> None:
        for _ in range(5):
            add(GOLDEN, options=QUICK)
            promote(shelf, "1", options=PromoteOptions(alias=f"own{number}"))
            clear(shelf, f"own{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shelf.state().versions) == 21
    assert [event.revision for event in shelf.history()] == list(range(1, 62))
