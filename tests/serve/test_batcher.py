from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onnxmt.errors import DecodingError, TokenizerError
from onnxmt.runtime.translation import SegmentTranslation, TranslateOptions, Translation
from onnxmt.runtime.translator import Translator
from onnxmt.serve.batcher import Batcher
from onnxmt.serve.metrics import Metrics
from onnxmt.serve.options import BatchOptions, Limits
from onnxmt.serve.problems import Problem
from onnxmt.serve.watched import Watch

GREEDY = TranslateOptions(beams=1)


class Fake:
    """Translates by upper case, a step a text; `gate` holds it before each step, `calls` are the texts of each call."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.calls: list[list[str]] = []
        self.finished: list[str] = []
        self.steps = 0
        self.tokenizer = SimpleNamespace(encode=lambda text: [0] * len(text.split()))

    def translate_detailed(self, texts: Sequence[str], *, options: TranslateOptions, errors: str) -> list[Translation]:
        self.calls.append(list(texts))
        self.begun.set()
        for text in texts:
            if text == "poison":
                raise DecodingError("not a number in poison")
            if text == "bad":
                raise TokenizerError("this text is bad")
            for _ in range(100 if text.startswith("endless") else 1):
                assert self.gate.wait(20)
                self.watch()
                self.steps += 1
            self.finished.append(text)
        return [answer(text) for text in texts]


def answer(text: str) -> Translation:
    done = {"text": text.upper(), "score": 0.0, "tokens": (1,), "finished": True}
    segment = SegmentTranslation(source=text, start=0, end=len(text), alternatives=(), **done)  # type: ignore[arg-type]
    return Translation(source=text, segments=(segment,), **done)  # type: ignore[arg-type]


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def made(fake: Fake) -> Iterator[Callable[..., Batcher]]:
    """Makes batchers of the fake, and ends them."""
    batchers: list[Batcher] = []

    def make(*, limits: Limits | None = None, **options: float) -> Batcher:
        settings = cast(Any, {"max_wait_ms": 20.0, **options})
        batcher = Batcher(
            cast(Translator, fake),
            watch=fake.watch,
            limits=limits or Limits(),
            options=BatchOptions(**settings),
            metrics=Metrics(),
        )
        batchers.append(batcher)
        return batcher

    yield make
    fake.gate.set()
    for batcher in batchers:
        batcher.close(seconds=10)


def ask(batcher: Batcher, *texts: str, seconds: float = 20.0, options: TranslateOptions = GREEDY) -> Awaitable[Any]:
    return asyncio.ensure_future(batcher.submit(texts, options, beams=1, seconds=seconds))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def texts_of(found: Any) -> list[str]:
    return [translation.text for translation in found.translations]


def test_requests_are_joined_and_each_gets_its_own(made: Any, fake: Fake) -> None:
    async def main() -> None:
        batcher = made()
        found = await asyncio.gather(*(ask(batcher, f"a{n}", f"b{n}") for n in range(10)))
        assert [texts_of(one) for one in found] == [[f"A{n}", f"B{n}"] for n in range(10)]
        assert found[0].input_tokens == 2

    asyncio.run(main())
    assert len(fake.calls) == 1
    assert len(fake.calls[0]) == 20


def test_a_batch_stays_within_its_tokens(made: Any, fake: Fake) -> None:
    async def main() -> None:
        batcher = made(max_tokens=64)
        await asyncio.gather(*(ask(batcher, f"text {n}") for n in range(10)))

    asyncio.run(main())
    assert max(map(len, fake.calls)) == 4  # of at least 16 tokens each
    assert sum(map(len, fake.calls)) == 10


def test_other_options_other_batch(made: Any, fake: Fake) -> None:
    async def main() -> None:
        batcher = made()
        other = TranslateOptions(beams=1, alternatives=0, max_new_tokens=9)
        await asyncio.gather(ask(batcher, "a"), ask(batcher, "b", options=other), ask(batcher, "c"))

    asyncio.run(main())
    assert sorted(fake.calls) == [["a", "c"], ["b"]]


def test_a_full_queue_says_when_to_come_back(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(limits=Limits(queue_requests=3), max_wait_ms=0)
        waiting = [ask(batcher, f"t{n}") for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="are waiting") as refused:
            await batcher.submit(["one more"], GREEDY, beams=1, seconds=5)
        assert (refused.value.status, refused.value.retry_after) == (429, 1)
        fake.gate.set()
        assert [texts_of(one) for one in await asyncio.gather(*waiting)] == [["T0"], ["T1"], ["T2"]]
        assert texts_of(await batcher.submit(["one more"], GREEDY, beams=1, seconds=20)) == ["ONE MORE"]

    asyncio.run(main())


def test_a_queue_full_of_characters_but_never_shut_to_a_single_request(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(limits=Limits(queue_characters=10))
        large = ask(batcher, "x" * 50)
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await batcher.submit(["y"], GREEDY, beams=1, seconds=5)
        assert refused.value.code == "queue_full"
        fake.gate.set()
        assert texts_of(await large) == ["X" * 50]

    asyncio.run(main())


def test_the_deadline_is_504_and_ends_the_work(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(max_wait_ms=0)
        late = ask(batcher, "endless", seconds=0.05)
        with pytest.raises(Problem, match=r"0\.05 s") as refused:
            await late
        assert refused.value.status == 504
        fake.gate.set()
        assert texts_of(await batcher.submit(["next"], GREEDY, beams=1, seconds=20)) == ["NEXT"]

    asyncio.run(main())
    assert fake.steps <= 2  # of a hundred: stopped at the next one, then the next request


def test_a_client_that_leaves_stops_costing_at_the_next_step(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(max_wait_ms=0)
        leaving = cast("asyncio.Task[Any]", ask(batcher, "endless"))
        await until(fake.begun.is_set)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        fake.gate.set()
        assert texts_of(await batcher.submit(["next"], GREEDY, beams=1, seconds=20)) == ["NEXT"]

    asyncio.run(main())
    assert fake.steps == 1


def test_one_that_leaves_does_not_take_its_neighbours_along(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made()
        leaving, staying = cast("asyncio.Task[Any]", ask(batcher, "gone")), ask(batcher, "here")
        await until(fake.begun.is_set)
        leaving.cancel()
        fake.gate.set()
        assert texts_of(await staying) == ["HERE"]

    asyncio.run(main())


def test_one_that_left_while_waiting_is_never_begun(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(max_wait_ms=0)
        first = ask(batcher, "first")
        await until(fake.begun.is_set)
        leaving = cast("asyncio.Task[Any]", ask(batcher, "gone"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        fake.gate.set()
        await first
        await batcher.submit(["last"], GREEDY, beams=1, seconds=20)

    asyncio.run(main())
    assert fake.calls == [["first"], ["last"]]


def test_short_ones_pass_a_long_one_that_runs(made: Any, fake: Fake) -> None:
    """Case L3: the long one gives way at its next step."""

    async def main() -> None:
        fake.gate.clear()
        batcher = made(short_characters=100, give_way_ms=10_000, max_wait_ms=0)
        long = cast("asyncio.Task[Any]", ask(batcher, "endless " * 50))
        await until(fake.begun.is_set)
        short = ask(batcher, "short")
        await asyncio.sleep(0)
        fake.gate.set()
        assert texts_of(await short) == ["SHORT"]
        assert len((await long).translations) == 1
        assert [text.split()[0] for text in fake.finished] == ["short", "endless"]

    asyncio.run(main())


def test_a_long_one_gets_on_while_short_ones_keep_coming(made: Any, fake: Fake) -> None:
    async def main() -> None:
        batcher = made(short_characters=100, give_way_ms=1, max_wait_ms=0)
        long = cast("asyncio.Task[Any]", ask(batcher, "endless " * 50))
        async with asyncio.timeout(20):
            while not long.done():
                await asyncio.gather(*(ask(batcher, "short") for _ in range(4)))

    asyncio.run(main())


@pytest.mark.parametrize(("text", "status"), [("poison", 500), ("bad", 422)])
def test_a_text_that_fails_fails_alone(
    made: Any, fake: Fake, text: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        batcher = made()
        good, wrong, other = ask(batcher, "good"), ask(batcher, text), ask(batcher, "other")
        assert texts_of(await good) == ["GOOD"]
        assert texts_of(await other) == ["OTHER"]
        with pytest.raises(Problem) as failed:
            await wrong
        assert failed.value.status == status

    asyncio.run(main())
    assert "poison" not in caplog.text


def test_closing_finishes_what_waits_and_takes_nothing_new(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(max_wait_ms=0)
        running = ask(batcher, "running")
        await until(fake.begun.is_set)
        waiting = ask(batcher, "waiting")
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.02)
        with pytest.raises(Problem, match="stopping") as refused:
            await batcher.submit(["new"], GREEDY, beams=1, seconds=5)
        assert refused.value.status == 503
        fake.gate.set()
        assert texts_of(await running) == ["RUNNING"]
        assert texts_of(await waiting) == ["WAITING"]
        await closing

    asyncio.run(main())


def test_closing_does_not_wait_for_ever(made: Any, fake: Fake) -> None:
    async def main() -> None:
        fake.gate.clear()
        batcher = made(max_wait_ms=0)
        stuck = ask(batcher, "endless")
        await until(fake.begun.is_set)
        await asyncio.to_thread(batcher.close, seconds=0.05)
        with pytest.raises(Problem) as refused:
            await stuck
        assert refused.value.status == 503

    asyncio.run(main())


def test_queue_and_compute_time_are_told(made: Any, fake: Fake) -> None:
    async def main() -> Any:
        fake.gate.clear()
        batcher = made(max_wait_ms=0)
        asked = ask(batcher, "text")
        await until(fake.begun.is_set)
        began = time.monotonic()
        await asyncio.sleep(0.05)
        fake.gate.set()
        return await asked, time.monotonic() - began

    found, seconds = asyncio.run(main())
    assert found.queue_seconds >= 0
    assert 0.04 < found.compute_seconds < seconds + 1


def test_after_a_batch_of_many_the_next_waits_for_those_who_were_answered(
    made: Any, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxmt.serve.batcher._PATIENCE", 1e9)
    monkeypatch.setattr("onnxmt.serve.batcher._MOST_PATIENCE", 30.0)

    async def main() -> None:
        batcher = made(max_wait_ms=0.0)
        fake.gate.clear()
        first = ask(batcher, "first")
        await until(fake.begun.is_set)
        many = [ask(batcher, f"many{n}") for n in range(4)]
        fake.gate.set()
        await asyncio.gather(first, *many)
        assert [len(call) for call in fake.calls] == [1, 4]
        lane = batcher._lanes[0]
        await until(lambda: lane.patient_until > time.monotonic() + 20)

        again = [ask(batcher, "again0")]
        await asyncio.sleep(0.1)
        assert len(fake.calls) == 2
        again.append(ask(batcher, "again1"))
        await asyncio.sleep(0)
        with batcher._changed:
            lane.patient_until = 0.0
            batcher._changed.notify_all()
        await asyncio.gather(*again)
        assert fake.calls[2] == ["again0", "again1"]

    asyncio.run(main())
