"""What no client may do to the service: cases V1 and V3, limits, keys, rates, memory, and malformed requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from onnxmt.errors import UsageError
from onnxmt.runtime.translator import Translator
from onnxmt.serve import BatchOptions, Limits, ServeOptions, create_app
from onnxmt.serve.guard import MemoryGuard, cgroup_memory_limit, memory_held, resident_memory
from onnxmt.serve.keys import RateLimit, read_keys
from onnxmt.serve.problems import Problem
from tests.serve.live import listening

POSTS = (
    "/v1/translate",
    "/v1/translate/stream",
    "/translate",
    "/v2/translate",
    "/language/translate/v2",
    "/immersive",
    "/kiss",
    "/detect",
    "/translate_file",
)


@pytest.fixture
def serve(translator: Translator) -> Iterator[Callable[..., TestClient]]:
    with ExitStack() as stack:

        def start(**options: Any) -> TestClient:
            app = create_app(translator, options=ServeOptions(**options))
            return stack.enter_context(TestClient(app, raise_server_exceptions=False))

        yield start


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    return response.json()["error"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "text is null; allowed: a string or a list of strings"),
        (5, "text is 5; allowed: a string or a list of strings"),
        ({}, "text is an object; allowed: a string or a list of strings"),
        (["ok", None], "text must be a string or a list of strings; item 1 is null"),
        ([["nested"]], "text must be a string or a list of strings; item 0 is a list"),
        ("half \ud800", "item 0 of text is not Unicode: it holds half a surrogate pair"),
    ],
)
def test_bad_texts_are_refused_by_name(client: TestClient, text: object, said: str) -> None:
    """Case V1."""
    body = json.dumps({"text": text})
    response = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
    assert problem(response, 422)["message"] == said


def test_empty_lists_and_texts_have_empty_answers(client: TestClient) -> None:
    """Case V1."""
    assert client.post("/v1/translate", json={"text": []}).json()["translations"] == []
    assert [t["text"] for t in client.post("/v1/translate", json={"text": [""]}).json()["translations"]] == [""]
    assert client.post("/translate", json={"q": [], "source": "en", "target": "zh"}).json() == {"translatedText": []}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("kind", ["text/plain", "", "application/xml", "multipart/form-data"])
def test_a_wrong_content_type_is_said_in_json(client: TestClient, path: str, kind: str) -> None:
    """Case V1: never a page of HTML, never 5xx."""
    response = client.post(path, content=b"text=Yes.", headers={"content-type": kind} if kind else {})
    assert 400 <= response.status_code < 500
    assert isinstance(response.json(), dict)


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"beams": 10_000}, 422, "beams is 10,000; at most 8 is allowed"),
        ({"beams": 10**400}, 422, "beams is a very large number; at most 8 is allowed"),
        ({"beams": 0}, 422, "beams: Input should be greater than or equal to 1"),
        ({"max_new_tokens": 10**9}, 422, "max_new_tokens is 1,000,000,000; at most 512 is allowed"),
        ({"alternatives": 99}, 422, "alternatives is 99; at most 7 is allowed"),
        ({"text": ["a"] * 50_000}, 413, "items in text: 50,000 in this request; at most 256"),
        ({"text": "a" * 60_000}, 413, "characters in text: 60,000 in this request; at most 50,000"),
        ({"text": "a" * 5_000_000}, 413, "at most 1,048,576"),
        ({"length": 1}, 422, "length: Extra inputs are not permitted"),
        ({"glossary": {"a": 5}}, 422, "glossary.a"),
        ({"glossary": {" a": "b"}}, 422, "the source term ' a' has spaces around it: remove them"),
        (
            {"glossary": {str(n): "b" for n in range(1001)}},
            413,
            "terms in glossary: 1,001 in this request; at most 1,000",
        ),
    ],
)
def test_huge_parameters_are_refused_with_the_limit(
    client: TestClient, change: dict[str, object], status: int, said: str
) -> None:
    """Case V3."""
    assert said in problem(client.post("/v1/translate", json={"text": "Yes.", **change}), status)["message"]


def test_a_body_without_a_length_is_cut_off_too(serve: Any) -> None:
    client = serve(limits=Limits(body_bytes=1000))
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 500

    response = client.post("/v1/translate", content=endless(), headers={"content-type": "application/json"})
    assert problem(response, 413)["limit"] == 1000


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"null", b"\xff", b'{"text": NaN}', b"[" * 100_000, b'{"a":' * 9999]
)
def test_broken_json(client: TestClient, body: bytes) -> None:
    response = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.json()["error"]["message"]


def test_bodies_that_together_are_too_large_for_memory(serve: Any) -> None:
    client = serve(limits=Limits(body_bytes=1000, bodies_bytes=2000))
    state = client.app.state.onnxmt
    state.receiving = 1990
    refused = client.post("/v1/translate", json={"text": "Yes."})
    assert problem(refused, 503)["code"] == "memory"
    assert state.receiving == 1990
    state.receiving = 0
    assert client.post("/v1/translate", json={"text": "Yes."}).status_code == 200
    assert state.receiving == 0


def test_a_body_that_does_not_arrive(translator: Translator) -> None:
    with listening(create_app(translator, options=ServeOptions(limits=Limits(body_seconds=0.2)))) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
        connection.putrequest("POST", "/v1/translate")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", "50")
        connection.endheaders(b'{"text": ')
        response = connection.getresponse()
        assert response.status == 408
        assert json.loads(response.read())["error"]["code"] == "body_timeout"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(
    [
        "text",
        "q",
        "texts",
        "text_list",
        "source",
        "target",
        "source_lang",
        "target_lang",
        "from",
        "to",
        "beams",
        "alternatives",
        "format",
        "strict",
        "glossary",
        "timeout_ms",
        "max_new_tokens",
        "split_sentences",
        "tag_handling",
        "api_key",
        "key",
        "auth_key",
        "type",
        "file",
    ]
)
likely = st.sampled_from(
    ["Yes.", "en", "zh", "auto", "html", "xml", "0", "1", "", "ZH", 1, 0, True, ["Yes.", "It rained."]]
)
bodies = st.one_of(
    st.dictionaries(names, likely | json_values, max_size=6).map(lambda value: json.dumps(value).encode()),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
)
kinds = st.sampled_from(
    [
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "a/b;c=é",
    ]
)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(POSTS), body=bodies, kind=kinds, method=st.sampled_from(["POST"] * 6 + ["GET", "PUT"]))
def test_a_thousand_malformed_requests_and_no_5xx(
    client: TestClient, path: str, body: bytes, kind: str, method: str
) -> None:
    response = client.request(method, path, content=body, headers={"content-type": kind.encode("latin-1")})
    assert response.status_code < 500, (path, body, response.text)
    if response.status_code >= 400:
        assert isinstance(response.json(), dict)


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/page/../own.py", "/%2e%2e/x", "/download_file/..%2f..%2fetc", "/%00"]
)
def test_no_path_leads_to_a_file(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


KEY = "a-key-of-some-length"


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/translate", {"text": "Yes."}, {"authorization": f"Bearer {KEY}"}),
        ("/v1/translate", {"text": "Yes."}, {"x-api-key": KEY}),
        ("/v2/translate", {"text": ["Yes."], "target_lang": "ZH"}, {"authorization": f"DeepL-Auth-Key {KEY}"}),
        ("/v2/translate", {"text": ["Yes."], "target_lang": "ZH", "auth_key": KEY}, {}),
        ("/language/translate/v2?key=" + KEY, {"q": "Yes.", "target": "zh"}, {}),
        ("/language/translate/v2", {"q": "Yes.", "target": "zh"}, {"x-goog-api-key": KEY}),
        ("/translate", {"q": "Yes.", "source": "en", "target": "zh", "api_key": KEY}, {}),
        ("/translate", {"text": "Yes.", "target_lang": "ZH"}, {"authorization": f"Bearer {KEY}"}),
        ("/kiss", {"texts": ["Yes."], "from": "en", "to": "zh"}, {"authorization": f"Bearer {KEY}"}),
        ("/immersive", {"text_list": ["Yes."], "target_lang": "zh"}, {"authorization": f"Bearer {KEY}"}),
    ],
)
def test_a_key_in_each_clients_own_way(serve: Any, path: str, body: Any, headers: dict[str, str]) -> None:
    client = serve(keys=frozenset({KEY, "another-key"}))
    without = {name: value for name, value in body.items() if value != KEY}

    assert client.post(path, json=body, headers=headers).status_code == 200
    wrong = client.post(path.partition("?")[0], json=without, headers={"authorization": "Bearer not-this-one"})
    assert wrong.status_code in (401, 403)
    assert client.post(path.partition("?")[0], json=without).status_code in (401, 403)
    assert client.get("/readyz").status_code == 200


def test_where_a_key_is_needed_nothing_of_the_model_is_told_without(serve: Any) -> None:
    client = serve(keys=frozenset({KEY}))
    refused = client.get("/v1/models")
    assert problem(refused, 401)["message"] == "an API key is needed: send it as 'Authorization: Bearer KEY'"
    assert refused.headers["www-authenticate"] == "Bearer"
    assert client.get("/v2/usage").status_code == 403


def test_keys_from_a_file(tmp_path: Any) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst-key\n\n second-key \n")
    assert read_keys(path) == {"first-key", "second-key"}
    path.write_text("# none\n")
    with pytest.raises(UsageError, match="holds none"):
        read_keys(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "absent")


def test_a_rate_for_each_caller_that_recovers() -> None:
    now = 0.0
    rate = RateLimit(60, clock=lambda: now)
    for _ in range(15):
        rate.take("one")
    with pytest.raises(Problem, match="at most 60 a minute") as refused:
        rate.take("one")
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    rate.take("other")
    now = 1.0
    rate.take("one")
    with pytest.raises(Problem):
        rate.take("one")


def test_the_rate_is_kept_by_the_service(serve: Any) -> None:
    client = serve(requests_per_minute=4)
    assert client.post("/v1/translate", json={"text": "Yes."}).status_code == 200
    refused = client.post("/v1/translate", json={"text": "Yes."})
    assert problem(refused, 429)["limit"] == 4
    assert int(refused.headers["retry-after"]) >= 1


def test_short_of_memory_is_503_and_counted(serve: Any) -> None:
    client = serve(memory_bytes=10**12)
    service = client.app.state.onnxmt.service
    service.guard = MemoryGuard(100, held=lambda: 101)
    assert client.post("/v1/translate", json={"text": "Yes."}).status_code == 200  # alone: else it would never recover
    service._running = 1
    refused = client.post("/v1/translate", json={"text": "Yes."})
    assert problem(refused, 503)["code"] == "memory"
    assert refused.headers["retry-after"] == "2"
    assert 'onnxmt_rejected_total{reason="memory"} 1.0' in client.get("/metrics").text


def test_the_memory_that_a_cgroup_allows(tmp_path: Any) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert cgroup_memory_limit(tmp_path) is None
    write("proc/self/cgroup", "0::/a/b\n")
    write("sys/fs/cgroup/a/memory.max", "536870912\n")
    write("sys/fs/cgroup/a/b/memory.max", "max\n")
    assert cgroup_memory_limit(tmp_path) == 512 << 20
    write("proc/self/cgroup", "4:cpu,memory:/c\n1:name=systemd:/\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", str((1 << 63) - 4096))
    assert cgroup_memory_limit(tmp_path) is None
    write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1000000")
    assert cgroup_memory_limit(tmp_path) == 1_000_000


def test_memory_of_this_process() -> None:
    assert 1 << 20 < memory_held() <= resident_memory()


def test_a_deadline_of_the_clients_own(client: TestClient) -> None:
    refused = client.post("/v1/translate", json={"text": "The library opens at nine. " * 200, "timeout_ms": 1})
    assert problem(refused, 504)["code"] == "deadline"


def test_cors_is_off_unless_asked_for(serve: Any, client: TestClient) -> None:
    page = {"origin": "https://page.example", "access-control-request-method": "POST"}
    assert not [name for name in client.options("/v1/translate", headers=page).headers if "access-control" in name]
    open_to = serve(origins=("https://page.example",))
    allowed = open_to.options("/v1/translate", headers=page)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, "https://page.example")
    other = open_to.get("/livez", headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers
    assert serve(origins=("*",)).get("/livez", headers=page).headers["access-control-allow-origin"] == "*"


def test_request_ids_and_safe_headers(client: TestClient) -> None:
    given_id = client.get("/livez", headers={"x-request-id": "a-1.b_2"})
    assert given_id.headers["x-request-id"] == "a-1.b_2"
    for wrong in ("with space", "x" * 65, "new\tline"):
        made = client.get("/livez", headers={"x-request-id": wrong}).headers["x-request-id"]
        assert made != wrong
        assert len(made) == 16
    assert given_id.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in given_id.headers["content-security-policy"]


def test_no_text_and_no_strange_address_in_logs_and_metrics(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "Myveryownsecret"
    with caplog.at_level("DEBUG", logger="onnxmt"):
        client.post("/v1/translate", json={"text": secret})
        client.post("/v1/translate", json={"text": [secret, 5]})
        client.post("/v1/translate/stream", json={"text": secret})
        client.get(f"/{secret}?q={secret}")
        client.request(secret.upper(), "/livez")
    assert "/v1/translate 200" in caplog.text
    assert secret.lower() not in caplog.text.lower()
    assert secret.lower() not in client.get("/metrics").text.lower()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Limits(items=0), "items is 0; a number above 0 is allowed"),
        (lambda: BatchOptions(max_tokens=0), "max_tokens is 0; a number of 1 or more is allowed"),
        (lambda: ServeOptions(keys=frozenset({"short"})), "an API key has fewer than 8 characters"),
        (lambda: ServeOptions(dialects=frozenset({"bing"})), "dialect 'bing'; there are: libretranslate, deepl"),
        (lambda: ServeOptions(requests_per_minute=0), "requests_per_minute is 0"),
    ],
)
def test_wrong_options_are_named(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()
