"""One Translator in many threads, in forked children, and through pickle."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onnxmt.errors import SessionError
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.runtime.translator import Translator
from tests.runtime.conftest import FORMAT1


def test_sixteen_threads_get_the_single_threads_answers(expected: list[dict[str, Any]]) -> None:
    texts = [row["source"] for row in expected]
    options = [TranslateOptions(beams=beams, split=False) for beams in (1, 4)]
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=2)) as shared:
        alone = [[shared.translate_detailed(text, options=o) for text in texts] for o in options]
        start = threading.Barrier(16)

        def work(number: int) -> list[Any]:
            start.wait()
            return [shared.translate_detailed(text, options=options[number % 2]) for text in texts]

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(work, range(16)))
    for number, answers in enumerate(found):
        assert [a.tokens for a in answers] == [a.tokens for a in alone[number % 2]]
        assert [a.score for a in answers] == pytest.approx([a.score for a in alone[number % 2]], abs=1e-6)


def wait_for(child: int, seconds: float) -> int:
    """The child's exit code; -9 after killing one that hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("threads", [1, 4])
def test_a_forked_child_translates_and_so_does_its_child(threads: int) -> None:
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=threads)) as shared:
        assert shared.translate("Yes.") == "是的。"
        child = os.fork()
        if child == 0:
            right = shared.translate("It rained.") == "下雨了。"
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if shared.translate("Thank you.") == "谢谢。" else 1)
            os._exit(0 if right and wait_for(grandchild, 30) == 0 else 1)
        assert shared.translate("Yes.") == "是的。"  # the parent goes on meanwhile
        assert wait_for(child, 60) == 0


def test_a_fork_in_the_middle_of_other_threads_work(expected: list[dict[str, Any]]) -> None:
    with Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=2)) as shared:
        stop = threading.Event()

        def busy() -> None:
            while not stop.is_set():
                shared.translate([row["source"] for row in expected])

        workers = [threading.Thread(target=busy) for _ in range(3)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    os._exit(0 if shared.translate("It rained.") == "下雨了。" else 1)
                assert wait_for(child, 60) == 0
        finally:
            stop.set()
            for worker in workers:
                worker.join()


def test_a_closed_translator_stays_closed_in_a_child() -> None:
    shared = Translator.load(FORMAT1 / "bundle", options=RuntimeOptions(threads=1))
    shared.close()
    child = os.fork()
    if child == 0:
        try:
            shared.translate("Yes.")
        except SessionError:
            os._exit(3)
        os._exit(0)
    assert wait_for(child, 30) == 3


FORKED = """
import os, sys
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
shared = Translator.load(sys.argv[1], options=RuntimeOptions(threads=4))
shared.translate("Yes.")
child = os.fork()
if child == 0:
    if sys.argv[2] == "used":
        assert shared.translate("It rained.") == "下雨了。"
    if sys.argv[2] == "dropped":
        del shared
    sys.exit(0)  # the whole way out, destructors included, unlike os._exit
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""


@pytest.mark.parametrize("how", ["used", "unused", "dropped"])
def test_a_forked_child_ends_in_good_order(how: str) -> None:
    """Destroying the parent's session there would crash the child: its threads are the parent's."""
    command = [sys.executable, "-c", FORKED, str(FORMAT1 / "bundle"), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_multiprocessing_workers_translate(expected: list[dict[str, Any]]) -> None:
    """A pool that forks, with the Translator inherited."""
    code = """
import multiprocessing, sys
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translator import Translator
shared = Translator.load(sys.argv[1], options=RuntimeOptions(threads=2))
shared.translate("Yes.")
def work(text):
    return shared.translate(text)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("|".join(pool.map(work, ["Yes.", "It rained."] * 4)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(FORMAT1 / "bundle")], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "|".join(["是的。", "下雨了。"] * 4)


def test_pickle_loads_the_bundle_again(translator: Translator) -> None:
    copy = pickle.loads(pickle.dumps(translator))

    assert copy.bundle == translator.bundle
    assert copy.runtime == translator.runtime
    assert copy.translate("Yes.") == "是的。"
    copy.close()
    assert translator.translate("Yes.") == "是的。"
