"""Hub models fetched from a stand-in on this machine: one commit, only the files needed, and what is said on failure."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.writers import marian_folder, safetensors
from tests.hub.client import Client
from tests.hub.standin import Hub, Repository, commit_id, serving

NAME = "Helsinki-NLP/opus-mt-en-zh"
NEEDED = [
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "source.spm",
    "target.spm",
    "vocab.json",
]
OTHERS = {
    "tf_model.h5": b"tensorflow", "flax_model.msgpack": b"flax", "rust_model.ot": b"rust", ".gitattributes": b"*",
    "onnx/encoder_model.onnx": b"onnx", "training_args.bin": b"pickle", "benchmark.txt": b"0.1",
}  # fmt: skip


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as standin:
        yield standin


@pytest.fixture
def client(tmp_path: Path, hub: Hub) -> Client:
    return Client(home=tmp_path / "hf", environment={"HF_ENDPOINT": hub.endpoint, "HF_HUB_DOWNLOAD_TIMEOUT": "30"})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """A model as the hub has it: with the same weights in other formats, and more that is not needed."""
    folder = marian_folder(tmp_path / "model")
    for name in ("source.spm", "target.spm", "vocab.json"):  # the cache keeps equal files once
        (folder / name).write_text(f'{{"{name}": 0}}')
    small = {path.name: path.read_bytes() for path in folder.iterdir()}
    card = b"---\nlicense: cc-by-4.0\n---\n"
    return {
        **small,
        "README.md": card,
        "generation_config.json": b'{"num_beams": 4}',
        "pytorch_model.bin": b"old",
        **OTHERS,
    }


@pytest.fixture
def model(hub: Hub, files: dict[str, bytes]) -> Repository:
    hub.repositories[NAME] = repository = Repository()
    repository.commit(files)
    return repository


def test_a_model_by_its_name(hub: Hub, client: Client, model: Repository) -> None:
    answer = client.resolve(NAME, action="read")
    assert answer["name"] == NAME
    assert answer["revision"] == model.refs["main"]
    assert answer["origin"] == "hub"
    assert Path(answer["folder"]).is_relative_to(client.home)
    assert answer["present"] == NEEDED
    assert answer["weights"] == {"a": [[0, 1, 2], [3, 4, 5]]}
    assert answer["licence"] == "cc-by-4.0"
    assert hub.fetched() == NEEDED
    assert set(hub.tokens) == {None}


def test_a_second_time_costs_no_download(hub: Hub, client: Client, model: Repository) -> None:
    client.resolve(NAME)
    hub.asked.clear()
    assert client.resolve(NAME)["present"] == NEEDED
    assert hub.fetched() == []


@pytest.mark.parametrize("ref", ["v1.0", "refs/pr/7", "feature/new-data"])
def test_a_branch_a_tag_or_a_pull_request(client: Client, model: Repository, files: dict[str, bytes], ref: str) -> None:
    main = model.refs["main"]
    commit = model.commit({**files, "config.json": b'{"model_type": "marian", "mark": 1}'}, ref=ref)
    assert commit != main
    answer = client.resolve(f"{NAME}@{ref}", action="read")
    assert answer["revision"] == commit
    assert answer["config"]["mark"] == 1
    assert client.resolve(f"{NAME}@{ref}", HF_HUB_OFFLINE="1")["revision"] == commit
    assert client.resolve(NAME)["revision"] == main


def test_a_commit(hub: Hub, client: Client, model: Repository, files: dict[str, bytes]) -> None:
    first = model.refs["main"]
    model.commit({**files, "vocab.json": b'{"new": 1}'})
    answer = client.resolve(f"{NAME}@{first}")
    assert answer["revision"] == first
    assert (Path(answer["folder"]) / "vocab.json").read_bytes() == files["vocab.json"]
    assert all(first in path for _, path in hub.asked if "/resolve/" in path or "/cdn/" in path)


def test_one_commit_even_when_the_branch_moves_meanwhile(
    hub: Hub, client: Client, model: Repository, files: dict[str, bytes]
) -> None:
    """The config of one commit with the weights of another would be a model that nobody ever made."""
    first = model.refs["main"]
    moved = {**files, "config.json": b'{"model_type": "marian", "moved": 1}', "generation_config.json": b"{}"}
    moved["model.safetensors"] = safetensors({"a": np.zeros(3, np.float32)})
    hub.after_info = lambda: model.commit(moved)
    answer = client.resolve(NAME, action="read")
    assert model.refs["main"] != first
    assert answer["revision"] == first
    assert "moved" not in answer["config"]
    assert answer["weights"] == {"a": [[0, 1, 2], [3, 4, 5]]}
    assert {path.split("/")[4] for _, path in hub.asked if "/resolve/" in path} == {first}
    assert client.resolve(NAME, HF_HUB_OFFLINE="1")["revision"] == first


def test_only_pytorch_weights(hub: Hub, client: Client, model: Repository, files: dict[str, bytes]) -> None:
    old = {name: data for name, data in files.items() if name not in ("model.safetensors", "generation_config.json")}
    model.commit(old)
    answer = client.resolve(NAME)
    assert answer["present"] == sorted({*NEEDED, "pytorch_model.bin"} - {"model.safetensors", "generation_config.json"})
    assert hub.fetched() == answer["present"]


def sharded(files: dict[str, bytes], *, present: int = 2) -> dict[str, bytes]:
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    parts = {name: safetensors({key: np.ones(2, np.float32)}) for name, key in zip(names, "ab", strict=True)}
    index = {"weight_map": dict(zip("ab", names, strict=True))}
    whole = {name: data for name, data in files.items() if name != "model.safetensors"}
    return {**whole, "model.safetensors.index.json": json.dumps(index).encode(), **dict(list(parts.items())[:present])}


def test_shards(hub: Hub, client: Client, model: Repository, files: dict[str, bytes]) -> None:
    model.commit(sharded(files))
    answer = client.resolve(NAME, action="read")
    assert answer["weights"] == {"a": [1, 1], "b": [1, 1]}
    assert "pytorch_model.bin" not in hub.fetched()
    model.commit(sharded(files, present=1))
    answer = client.resolve(NAME)
    assert answer["error"] == "MissingFileError"
    assert "has no model-00002-of-00002.safetensors, which its model.safetensors.index.json names" in answer["message"]


def test_only_the_small_files(hub: Hub, client: Client, model: Repository, files: dict[str, bytes]) -> None:
    answer = client.resolve(NAME, files="small", action="look")
    small = sorted(set(NEEDED) - {"model.safetensors"})
    assert answer["present"] == small
    assert answer["files"] == {name: len(data) for name, data in files.items()}
    assert answer["weight_files"] == ["model.safetensors"]
    assert answer["shapes"] == {"a": [2, 3]}
    assert client.cached() == small


def test_a_look_at_other_weights(client: Client, model: Repository, files: dict[str, bytes]) -> None:
    model.commit(sharded(files))
    answer = client.resolve(NAME, files="small", action="look")
    assert answer["weight_files"] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert answer["shapes"] == {"a": [2], "b": [2]}
    old = {name: data for name, data in files.items() if name != "model.safetensors"}
    model.commit(old)
    answer = client.resolve(NAME, files="small", action="look")
    assert (answer["weight_files"], answer["shapes"]) == (["pytorch_model.bin"], None)
    del old["pytorch_model.bin"]
    model.commit(old)
    assert client.resolve(NAME, files="small", action="look")["weight_files"] == []


def test_a_repository_without_what_is_needed(client: Client, model: Repository, files: dict[str, bytes]) -> None:
    weightless = {name: data for name, data in files.items() if name not in ("model.safetensors", "pytorch_model.bin")}
    model.commit(weightless)
    answer = client.resolve(NAME)
    assert answer["error"] == "MissingFileError"
    assert "has no weights that onnxmt reads" in answer["message"]
    assert "only tf_model.h5, flax_model.msgpack, rust_model.ot" in answer["message"]
    model.commit({"README.md": b"", "model.onnx": b""})
    answer = client.resolve(NAME)
    assert answer["error"] == "MissingFileError"
    assert f"{NAME}@main (commit {model.refs['main'][:12]}) has no config.json" in answer["message"]


def test_a_person_who_watches_sees_progress(client: Client, model: Repository) -> None:
    """Every other test has no terminal, and demands an empty standard error."""
    shown = client.watch(NAME)
    assert "Fetching 1 files" in shown  # the weights; the small files take no time
    assert "100%" in shown
    assert "Fetching 6 files" not in shown


# The environment.


def test_token(hub: Hub, client: Client, model: Repository) -> None:
    model.token = "hf_secret"
    message = client.error(NAME)
    assert "it does not exist or is private (401); set HF_TOKEN to a token that may read it" in message
    assert client.cached() == []
    hub.tokens.clear()
    assert client.resolve(NAME, HF_TOKEN="hf_secret")["present"] == NEEDED
    assert "Bearer hf_secret" in hub.tokens
    wrong = client.error(NAME, HF_TOKEN="hf_wrong")
    assert "hf_wrong" not in wrong


def test_home_is_where_the_files_go(tmp_path: Path, client: Client, model: Repository) -> None:
    elsewhere = tmp_path / "elsewhere"
    answer = client.resolve(NAME, HF_HOME=str(elsewhere))
    assert Path(answer["folder"]).is_relative_to(elsewhere)
    assert not client.home.exists()


def test_a_mirror(tmp_path: Path, client: Client, model: Repository) -> None:
    """HF_ENDPOINT is the only address that is asked: the first machine has none, and says what to set."""
    alone = Client(home=tmp_path / "other", environment={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert "set HF_ENDPOINT to a mirror that you can reach" in alone.error(NAME)
    mirror = client.environment["HF_ENDPOINT"]
    assert alone.resolve(NAME, HF_ENDPOINT=mirror + "/")["present"] == NEEDED


# Without a network.


def test_offline_with_a_complete_cache(hub: Hub, client: Client, model: Repository) -> None:
    online = client.resolve(NAME)
    hub.asked.clear()
    offline = client.resolve(NAME, HF_HUB_OFFLINE="1", action="read")
    assert {key: offline[key] for key in online} == online
    assert offline["weights"] == {"a": [[0, 1, 2], [3, 4, 5]]}
    assert client.resolve(f"{NAME}@{online['revision']}", HF_HUB_OFFLINE="1")["folder"] == online["folder"]
    assert hub.asked == []


def test_offline_with_an_empty_cache(hub: Hub, client: Client, model: Repository) -> None:
    message = client.error(NAME, HF_HUB_OFFLINE="1")
    assert f"HF_HUB_OFFLINE is set, and the cache {client.home / 'hub'} has no config.json of {NAME}@main" in message
    assert "unset HF_HUB_OFFLINE and run once with a connection" in message
    assert "or give a local folder" in message
    assert hub.asked == []


def test_offline_with_another_commit_in_the_cache(client: Client, model: Repository) -> None:
    commit = model.refs["main"]
    client.resolve(f"{NAME}@{commit}")
    message = client.error(NAME, HF_HUB_OFFLINE="1")
    assert f"(commits in it: {commit}; name one as {NAME}@COMMIT)" in message


@pytest.mark.parametrize("absent", ["source.spm", "model.safetensors"])
def test_offline_with_an_incomplete_cache_names_the_file(client: Client, model: Repository, absent: str) -> None:
    folder = Path(client.resolve(NAME)["folder"])
    (folder / absent).unlink()
    message = client.error(NAME, HF_HUB_OFFLINE="1")
    assert "the cached copy of" in message
    assert "is incomplete; missing: " in message
    assert absent in message
    assert "unset HF_HUB_OFFLINE and run once" in message
    assert client.resolve(NAME)["present"] == NEEDED


def test_offline_small_files_suffice_for_a_look(client: Client, model: Repository) -> None:
    client.resolve(NAME, files="small")
    assert client.resolve(NAME, files="small", HF_HUB_OFFLINE="1")["revision"] == model.refs["main"]
    assert "has no weights; expected model.safetensors" in client.error(NAME, HF_HUB_OFFLINE="1")


# Failures.


def test_a_model_that_is_not_there(client: Client, model: Repository) -> None:
    message = client.error("Helsinki-NLP/opus-mt-en-xx")
    assert f"cannot fetch Helsinki-NLP/opus-mt-en-xx@main from {client.environment['HF_ENDPOINT']}: " in message
    assert "it does not exist or is private (401)" in message


def test_a_model_that_a_mirror_does_not_have(hub: Hub, client: Client) -> None:
    hub.answer_all_with = 404
    message = client.error(NAME)
    assert "there is no such model (404), and no folder of that name here; check the spelling" in message


def test_a_revision_that_is_not_there(client: Client, model: Repository) -> None:
    message = client.error(f"{NAME}@v9")
    assert "it has no branch, tag or commit 'v9' (404); see " in message
    assert f"{NAME}/tree/main" in message
    assert commit_id("x") in client.error(f"{NAME}@{commit_id('x')}")


def test_a_gated_model(client: Client, model: Repository) -> None:
    model.gated = True
    message = client.error(NAME)
    assert f"access to it is gated (403); accept its terms on {client.environment['HF_ENDPOINT']}/{NAME}" in message
    assert "set HF_TOKEN" in message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "access is forbidden (403); set HF_TOKEN"),
        (429, "too many requests (429); wait some minutes"),
        (500, "the hub answers 500; try again later, set HF_ENDPOINT to a mirror, or give a local folder"),
        (418, "the hub answers 418"),
    ],
)
def test_other_answers(hub: Hub, client: Client, status: int, words: str) -> None:
    hub.answer_all_with = status
    assert words in client.error(NAME)


@pytest.mark.parametrize("body", [b"<html>Log in to this network</html>", b"[]", b"{}", b"null", b'{"sha": 3}'])
def test_an_address_that_is_no_hub(hub: Hub, client: Client, body: bytes) -> None:
    hub.body_of_all = body
    message = client.error(NAME)
    assert "check HF_ENDPOINT" in message or "is it a hub?" in message


def test_no_connection(client: Client) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    message = client.error(NAME, HF_ENDPOINT=endpoint)
    assert f"cannot fetch {NAME}@main from {endpoint}: no connection (" in message
    assert "refused" in message
    assert (
        "set HF_ENDPOINT to a mirror that you can reach, or give a local folder (with a complete copy in the cache,"
        in message
    )


def test_no_connection_but_a_complete_copy(client: Client, model: Repository) -> None:
    """A copy is never taken without a word: it may be an old one."""
    commit = client.resolve(NAME)["revision"]
    message = client.error(NAME, HF_ENDPOINT="http://127.0.0.1:9")
    assert f"set HF_HUB_OFFLINE=1 to use the copy in the cache, which is complete (commit {commit[:12]})" in message


def test_no_name_server(client: Client) -> None:
    message = client.error(NAME, HF_ENDPOINT="http://hub.invalid")
    assert "the name hub.invalid cannot be resolved (no network, or no DNS); set HF_ENDPOINT to a mirror" in message


def test_no_answer(hub: Hub, client: Client) -> None:
    hub.silent = True
    message = client.error(NAME, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert "no answer within 1 s (HF_HUB_DOWNLOAD_TIMEOUT)" in message


@pytest.mark.parametrize("endpoint", ["hf-mirror.example", "ftp://hub.example", "https://"])
def test_an_endpoint_that_is_no_address(client: Client, endpoint: str) -> None:
    message = client.error(NAME, HF_ENDPOINT=endpoint)
    assert message.startswith(f"HF_ENDPOINT is {endpoint.rstrip('/')!r}, which is no URL; expected one like https://")


@pytest.mark.parametrize("setting", [{"HF_ENDPOINT": "http://[broken"}, {"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}])
def test_settings_that_huggingface_hub_cannot_read(client: Client, setting: dict[str, str]) -> None:
    message = client.error(NAME, **setting)
    assert "HF_" in message
    assert "no URL; expected" in message or "cannot use the HF_… variables of this environment: " in message


def test_a_cache_that_cannot_be_written(client: Client, model: Repository) -> None:
    client.home.parent.mkdir(parents=True, exist_ok=True)
    client.home.write_bytes(b"a file where the folder should be")
    message = client.error(NAME)
    assert f"cannot fetch {NAME}@main" in message
    assert f": {client.home}" in message
    assert "set HF_HOME to another folder" in message


def test_a_revision_that_cannot_be_noted_in_the_cache(
    client: Client, model: Repository, files: dict[str, bytes]
) -> None:
    """refs/main is a file: a branch main/next cannot be noted beside it, and is still fetched."""
    client.resolve(NAME)
    commit = model.commit({**files, "vocab.json": b"{}"}, ref="main/next")
    assert client.resolve(f"{NAME}@main/next")["revision"] == commit
    message = client.error(f"{NAME}@main/next", HF_HUB_OFFLINE="1")
    assert commit in message


def test_a_line_that_breaks_once_is_taken_up_again(hub: Hub, client: Client, model: Repository) -> None:
    import importlib.metadata

    hub.drop_after, hub.drops_left = {"model.safetensors": 30}, 1
    if importlib.metadata.version("huggingface_hub").startswith("1."):
        client.error(NAME)  # version 1 does not resume by itself
    assert client.resolve(NAME, action="read")["weights"] == {"a": [[0, 1, 2], [3, 4, 5]]}


def test_a_line_that_stays_broken_leaves_nothing_that_counts_as_whole(
    hub: Hub, client: Client, model: Repository, files: dict[str, bytes]
) -> None:
    hub.drop_after, hub.drops_left = {"model.safetensors": 30}, 10**9
    message = client.error(NAME)
    assert "the connection broke off during the download; try again (what is complete is kept)" in message
    assert client.cached() == sorted(set(NEEDED) - {"model.safetensors"})
    assert "has no weights" in client.error(f"{NAME}@{model.refs['main']}", HF_HUB_OFFLINE="1")
    hub.drops_left = 0
    hub.asked.clear()
    answer = client.resolve(NAME, action="read")
    assert answer["weights"] == {"a": [[0, 1, 2], [3, 4, 5]]}
    assert hub.fetched() == ["model.safetensors"]


def test_xet_storage_that_cannot_be_reached(hub: Hub, client: Client, model: Repository) -> None:
    """The public hub keeps weights there; a mirror or a firewall often knows the hub alone."""
    hub.xet = "http://127.0.0.1:9"
    quick = {"HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "1", "HF_XET_CLIENT_RETRY_BASE_DELAY": "10ms"}
    message = client.error(NAME, **quick)
    assert "the hub's Xet storage failed (" in message
    assert "set HF_HUB_DISABLE_XET=1 to fetch over plain HTTP" in message
    assert client.resolve(NAME, HF_HUB_DISABLE_XET="1")["present"] == NEEDED


def test_a_file_of_the_wrong_size_in_the_cache_is_found(client: Client, model: Repository) -> None:
    folder = Path(client.resolve(NAME)["folder"])
    blob = (folder / "source.spm").resolve()
    blob.write_bytes(b"{}and more")
    message = client.error(NAME)
    assert f"source.spm of {NAME}@main has 10 bytes in the cache and 17 on " in message
    assert f"delete {blob} and try again" in message
