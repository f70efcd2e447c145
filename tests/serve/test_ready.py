"""Case R5: ready means warm. All sessions are made and have worked before the first request, which makes none."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from onnxmt.runtime.session import RuntimeOptions, Session
from onnxmt.serve import create_app
from onnxmt.serve.service import Service
from tests.runtime.conftest import FORMAT1


def test_not_ready_until_it_has_translated_and_then_nothing_is_left_to_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    told: list[tuple[int, bool]] = []
    open_session, warm = Session._open, Service.warm

    def counting(session: Session) -> object:
        made.append(session.path.name)
        return open_session(session)

    async def watched(service: Service) -> None:
        told.append((len(made), service.ready))
        await warm(service)
        told.append((len(made), service.ready))

    monkeypatch.setattr(Session, "_open", counting)
    monkeypatch.setattr(Service, "warm", watched)
    app = create_app(FORMAT1 / "bundle", runtime=RuntimeOptions(threads=1))
    cold = TestClient(app)
    assert cold.get("/readyz").status_code == 503
    assert cold.get("/livez").status_code == 200
    assert cold.post("/v1/translate", json={"text": "Yes."}).status_code == 503
    assert made == []

    with TestClient(app) as client:
        assert sorted(made) == ["decoder.onnx", "encoder.onnx"]
        assert told == [(2, False), (2, True)]
        assert client.get("/readyz").status_code == 200
        # one text, and a batch of two lengths, have gone all the way
        assert "onnxmt_batch_texts_count 2.0" in client.get("/metrics").text
        for text in ("Yes.", ["Yes.", "The library opens at nine. " * 40]):
            assert client.post("/v1/translate", json={"text": text}).status_code == 200
        assert len(made) == 2
    assert cold.get("/readyz").status_code == 503
