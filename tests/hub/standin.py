"""A stand-in for the hub on 127.0.0.1: the routes that huggingface_hub really asks for, over repositories in memory.

The answers follow what huggingface_hub 1.0 and 2.4 read of them: the commit in X-Repo-Commit, errors in X-Error-Code, and
for large files a redirect to another address with the size and the hash in X-Linked-Size and X-Linked-ETag.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".bin", ".h5", ".msgpack", ".ot", ".onnx")


def commit_id(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class Repository:
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    token: str | None = None  # a private repository: who does not send it sees nothing
    gated: bool = False

    def commit(self, files: dict[str, bytes], *, ref: str = "main") -> str:
        commit = commit_id(json.dumps([ref, len(self.commits), sorted(files)]))
        self.commits[commit] = dict(files)
        self.refs[ref] = commit
        return commit


@dataclass
class Hub:
    """What the server serves, what it was asked, and how it fails."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    answer_all_with: int | None = None
    body_of_all: bytes | None = None
    silent: bool = False
    drop_after: dict[str, int] = field(default_factory=dict)  # file name: bytes to send before the line is cut
    drops_left: int = 0
    xet: str | None = None  # the address of a Xet storage that large files are said to be in, as on the public hub
    after_info: Callable[[], None] | None = None
    endpoint: str = ""

    def fetched(self) -> list[str]:
        """The names of the files that were downloaded, and not only asked about."""
        names = [path.rpartition("/")[2] for method, path in self.asked if method == "GET" and "/resolve/" in path]
        return sorted(
            set(names) | {path.split("/")[3] for method, path in self.asked if method == "GET" and "/cdn/" in path}
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        """Nothing to the terminal."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        hub = self.hub
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        hub.asked.append((self.command, path))
        authorization = self.headers.get("authorization")
        hub.tokens.append(authorization)
        if hub.silent:
            threading.Event().wait(30)
            return
        if hub.body_of_all is not None:
            self.send(200, hub.body_of_all, body=body)
            return
        if hub.answer_all_with is not None:
            self.fail(hub.answer_all_with, "", "out of order", body=body)
            return
        if path.startswith("/cdn/"):
            _, _, commit, file, name = path.split("/", 4)
            self.send_file(hub.repositories[name].commits[commit][file], file, {}, body=body)
        elif path.startswith("/api/models/"):
            self.api(path.removeprefix("/api/models/"), parse_qs(parts.query), authorization, body=body)
        elif "/resolve/" in path:
            self.resolve(path[1:], authorization, body=body)
        else:
            self.fail(404, "", "no such page", body=body)

    def repository(self, name: str, authorization: str | None, *, body: bool) -> Repository | None:
        found = self.hub.repositories.get(name)
        if found is None:  # the hub answers 401 for what does not exist, lest names of private models can be guessed
            self.fail(401, "RepoNotFound", "Repository not found", body=body)
        elif found.token is not None and authorization != f"Bearer {found.token}":
            self.fail(401, "RepoNotFound", "Invalid username or password.", body=body)
        elif found.gated:
            self.fail(403, "GatedRepo", "Access to model is restricted", body=body)
        else:
            return found
        return None

    def api(self, path: str, query: dict[str, list[str]], authorization: str | None, *, body: bool) -> None:
        name = "/".join(path.split("/")[:2])
        kind, _, revision = path.removeprefix(name).strip("/").partition("/")
        repository = self.repository(name, authorization, body=body)
        if repository is None:
            return
        if kind == "xet-read-token" and self.hub.xet is not None:
            token = {"X-Xet-Cas-Url": self.hub.xet, "X-Xet-Access-Token": "t", "X-Xet-Token-Expiration": "9999999999"}
            self.send(200, b"{}", token, body=body)
            return
        revision = revision or "main"
        commit = revision if revision in repository.commits else repository.refs.get(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}", body=body)
            return
        files = repository.commits[commit]
        if kind == "tree":
            listing = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            self.send_json(listing, body=body)
            return
        sizes = query.get("blobs") == ["true"] or query.get("blobs") == ["True"]
        siblings = [{"rfilename": path, **({"size": len(data)} if sizes else {})} for path, data in files.items()]
        self.send_json({"id": name, "modelId": name, "sha": commit, "private": False, "siblings": siblings}, body=body)
        if self.hub.after_info is not None:
            self.hub.after_info()

    def resolve(self, path: str, authorization: str | None, *, body: bool) -> None:
        name, _, rest = path.partition("/resolve/")
        repository = self.repository(name, authorization, body=body)
        if repository is None:
            return
        known = [*repository.commits, *repository.refs]
        revision = next((candidate for candidate in known if rest.startswith(f"{candidate}/")), None)
        if revision is None:
            self.fail(404, "RevisionNotFound", "Invalid rev id", body=body)
            return
        file = rest.removeprefix(f"{revision}/")
        commit = repository.refs.get(revision, revision)
        headers = {"X-Repo-Commit": commit}
        if file not in repository.commits[commit]:
            self.fail(404, "EntryNotFound", "Entry not found", headers, body=body)
            return
        data = repository.commits[commit][file]
        if file.endswith(LARGE):
            headers["X-Linked-Size"] = str(len(data))
            headers["X-Linked-ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
            if self.hub.xet is not None:
                headers["X-Xet-Hash"] = hashlib.sha256(data).hexdigest()
                headers["Link"] = f'<{self.hub.endpoint}/api/models/{name}/xet-read-token/{commit}>; rel="xet-auth"'
            headers["Location"] = f"http://localhost:{self.server.server_port}/cdn/{commit}/{file}/{name}"
            self.send(302, b"", headers, body=body)
        else:
            self.send_file(data, file, headers, body=body)

    def send_file(self, data: bytes, name: str, headers: dict[str, str], *, body: bool) -> None:
        status = 200
        headers = {**headers, "ETag": f'"{hashlib.sha1(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        wanted = self.headers.get("range")
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            stop = min(int(last) + 1 if last else len(data), len(data))
            headers["Content-Range"] = f"bytes {first}-{stop - 1}/{len(data)}"
            data, status = data[int(first) : stop], 206
        limit = self.hub.drop_after.get(name)
        if body and limit is not None and self.hub.drops_left > 0:
            self.hub.drops_left -= 1
            self.send(status, data, headers, body=True, cut=limit)
        else:
            self.send(status, data, headers, body=body)

    def send_json(self, value: object, *, body: bool) -> None:
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"}, body=body)

    def fail(self, status: int, code: str, message: str, headers: dict[str, str] | None = None, *, body: bool) -> None:
        headers = {**(headers or {}), "X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self.send(status, json.dumps({"error": message}).encode(), headers, body=body)

    def send(
        self, status: int, data: bytes, headers: dict[str, str] | None = None, *, body: bool, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data if cut is None else data[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """Run a stand-in for as long as the block lasts."""
    hub = Hub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
