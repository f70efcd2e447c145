"""Fetching a hub model's files through huggingface_hub: one commit, only what is needed, errors that say what to set.

Nothing here writes an environment variable: HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE act when huggingface_hub
is imported, which is when this module is.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants, errors, snapshot_download, try_to_load_from_cache
from huggingface_hub.utils.tqdm import tqdm as hub_bar

from onnxmt.checkpoint_files import CONFIG, SMALL_FILES, missing_files
from onnxmt.errors import CheckpointError, DownloadError, MissingFileError
from onnxmt.json_file import read_json_object
from onnxmt.weights import no_weights, preferred_entry, shard_files

# huggingface_hub 1.x raises httpx's errors and 2.x httpx2's: the base class of its own errors is the handle on either.
TRANSPORT_ERROR: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
# RuntimeError is hf_xet's; ValueError, TypeError and KeyError are what comes of an answer that is not the hub's.
LIBRARY_ERRORS = (
    OSError, TRANSPORT_ERROR, errors.SafetensorsParsingError, RuntimeError, ValueError, TypeError, KeyError,
)  # fmt: skip
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
DEFAULT_REVISION = "main"


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A folder of the hub's cache and the commit that its files are of."""

    folder: Path
    commit: str


def fetch(name: str, revision: str | None, *, files: Literal["all", "small"]) -> Fetched:
    """Bring the files of hub model `name` into the hub's cache and return their folder; DownloadError when it fails.

    The revision is resolved once, and every file is asked for at that commit. Small files come first, so that a
    snapshot that holds weights holds everything. Under HF_HUB_OFFLINE only the cache is looked at.
    """
    request = _Request(name=name, revision=revision or DEFAULT_REVISION, files=files)
    if constants.HF_HUB_OFFLINE:
        return _from_cache(request)
    _check_endpoint()
    with _translated(request):
        commit, listing = _listing(request)
        where = f"{request.label} (commit {commit[:12]})"
        if CONFIG not in listing:
            raise MissingFileError(f"{where} has no {CONFIG}: it is not a checkpoint in Hugging Face format")
        small = [file for file in SMALL_FILES if file in listing]
        folder = _download(request, commit, listing, small, bar=_bar(wanted=False))
        if files == "all":
            weights = _weight_names(where, folder, listing)
            _download(request, commit, listing, weights, bar=_bar(wanted=True))
    if request.revision != commit:
        _remember(folder, request.revision, commit)
    return Fetched(folder=folder, commit=commit)


def remote_files(name: str, revision: str) -> dict[str, int | None]:
    """The files of hub model `name` and their sizes in bytes (None where the hub does not say), downloading none."""
    request = _online(name, revision)
    with _translated(request):
        return _listing(request)[1]


def remote_shapes(name: str, revision: str, files: Collection[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights in the safetensors `files` of a hub model, from the first kilobytes of each."""
    request = _online(name, revision)
    shapes: dict[str, tuple[int, ...]] = {}
    with _translated(request):
        for file in files:
            header = HfApi().parse_safetensors_file_metadata(name, file, revision=revision)
            shapes.update((tensor, tuple(info.shape)) for tensor, info in header.tensors.items())
    return shapes


def _online(name: str, revision: str) -> _Request:
    request = _Request(name=name, revision=revision, files="small")
    if constants.HF_HUB_OFFLINE:
        raise DownloadError(f"HF_HUB_OFFLINE is set, so the hub cannot be asked about {request.label}: unset it")
    _check_endpoint()
    return request


@dataclass(frozen=True, kw_only=True)
class _Request:
    name: str
    revision: str
    files: Literal["all", "small"]

    @property
    def label(self) -> str:
        return f"{self.name}@{self.revision}"


def _listing(request: _Request) -> tuple[str, dict[str, int | None]]:
    """The commit that the revision is now, and that commit's files with their sizes."""
    info = HfApi().model_info(
        request.name, revision=request.revision, files_metadata=True, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
    )
    if not info.sha or info.siblings is None:
        raise DownloadError(f"{constants.ENDPOINT} does not say what {request.label} consists of: is it a hub?")
    return info.sha, {sibling.rfilename: sibling.size for sibling in info.siblings}


def _weight_names(where: str, folder: Path, listing: Collection[str]) -> list[str]:
    """The files of one weights format: the one that transformers would take."""
    entry = preferred_entry(listing)
    if entry is None:
        raise MissingFileError(no_weights(where, listing))
    if not entry.endswith(".index.json"):
        return [entry]
    shards = sorted(set(shard_files(folder / entry).values()))
    absent = [shard for shard in shards if shard not in listing]
    if absent:
        raise MissingFileError(f"{where} has no {', '.join(absent)}, which its {entry} names")
    return shards


def _download(
    request: _Request, commit: str, sizes: Mapping[str, int | None], names: list[str], *, bar: type[hub_bar]
) -> Path:
    """Fetch `names` at `commit`, and check that each has come, which snapshot_download does not when the hub fails."""
    folder = Path(snapshot_download(request.name, revision=commit, allow_patterns=names, tqdm_class=bar))
    for name in names:
        path = folder / name
        if not path.is_file():
            raise DownloadError(
                f"{name} of {request.label} did not come from {constants.ENDPOINT}: try again, what is complete is kept"
            )
        size, expected = path.stat().st_size, sizes[name]
        if expected is not None and size != expected:
            raise DownloadError(
                f"{name} of {request.label} has {size} bytes in the cache and {expected} on {constants.ENDPOINT}: "
                f"delete {path.resolve()} and try again"
            )
    return folder


def _remember(folder: Path, revision: str, commit: str) -> None:
    """Write which commit the revision was into the cache, so that it is found offline.

    huggingface_hub itself does so only for downloads by branch name, before they are complete and by a second look at
    the branch, which may have moved; the layout is the documented one (refs/REVISION beside snapshots/COMMIT).
    """
    path = folder.parent.parent / "refs" / revision
    # A cache that is shared and read-only serves as well: offline it then says which commits it has.
    with contextlib.suppress(OSError):
        if path.is_file() and path.read_text(encoding="ascii", errors="replace") == commit:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
        temporary.write_text(commit, encoding="ascii")
        temporary.replace(path)


def _from_cache(request: _Request) -> Fetched:
    """The cached copy, when all that is needed is in it."""
    cached = _cached_folder(request)
    switch = "HF_HUB_OFFLINE is set, and the cache"
    remedy = (
        "unset HF_HUB_OFFLINE and run once with a connection to the hub (HF_ENDPOINT may name a mirror), "
        "or give a local folder that is complete"
    )
    if cached is None:
        kept = _cached_commits(request.name)
        others = f" (commits in it: {', '.join(kept)}; name one as {request.name}@COMMIT)" if kept else ""
        raise DownloadError(f"{switch} {constants.HF_HUB_CACHE} has no {CONFIG} of {request.label}{others}: {remedy}")
    missing = _lacking(cached, request)
    if missing:
        raise DownloadError(f"{switch}d copy of {request.label} is incomplete; missing: {'; '.join(missing)}: {remedy}")
    return Fetched(folder=cached, commit=cached.name)


def _cached_folder(request: _Request) -> Path | None:
    found = try_to_load_from_cache(request.name, CONFIG, revision=request.revision)
    return Path(found).parent if isinstance(found, str) else None


def _cached_commits(name: str) -> list[str]:
    snapshots = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    return sorted(path.name for path in snapshots.iterdir()) if snapshots.is_dir() else []


def _lacking(folder: Path, request: _Request) -> tuple[str, ...]:
    return missing_files(folder, read_json_object(folder / CONFIG), weights=request.files == "all")


def _check_endpoint() -> None:
    try:
        parts = urlsplit(constants.ENDPOINT)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise DownloadError(f"HF_ENDPOINT is {constants.ENDPOINT!r}, which is no URL; expected one like https://HOST")


def _bar(*, wanted: bool) -> type[hub_bar]:
    """huggingface_hub's progress bar, which appears only when it is wanted and a person watches standard error."""

    class TerminalBar(hub_bar):
        """A bar that a log file or a pipe never sees."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if not wanted or not sys.stderr.isatty():
                kwargs["disable"] = True
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

    return TerminalBar


@contextlib.contextmanager
def _translated(request: _Request) -> Iterator[None]:
    """Turn what huggingface_hub raises into one DownloadError, and keep its log lines off the terminal meanwhile.

    The lines say what the error then says again; who wants them sets HF_HUB_VERBOSITY or HF_DEBUG.
    """
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    if not os.environ.get("HF_HUB_VERBOSITY") and not constants.HF_DEBUG:
        logger.setLevel(logging.ERROR)
    try:
        yield
    except (DownloadError, CheckpointError):
        raise
    except LIBRARY_ERRORS as error:
        raise DownloadError(_message(request, error)) from error
    finally:
        logger.setLevel(level)


def _message(request: _Request, error: BaseException) -> str:
    found, remedy = _diagnosis(request, error)
    return f"cannot fetch {request.label} from {constants.ENDPOINT}: {found}; {remedy}"


def _diagnosis(request: _Request, error: BaseException) -> tuple[str, str]:
    """What went wrong, and what to set or do about it."""
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, errors.HfHubHTTPError):
            return _http_diagnosis(request, link)
    for link in chain:
        if isinstance(link, OSError) and (link.errno in FULL_DISK or (link.errno and link.filename)):
            place = link.filename or constants.HF_HUB_CACHE
            return f"{link.strerror}: {place}", "make room or free the place, or set HF_HOME to another folder"
    if _came_from_xet(error):
        plain = "set HF_HUB_DISABLE_XET=1 to fetch over plain HTTP, as most mirrors need"
        return f"the hub's Xet storage failed ({_line(error)})", plain
    names = {type(link).__name__ for link in chain}
    mirror = f"set HF_ENDPOINT to a mirror that you can reach, or {_offline_remedy(request)}"
    if any(isinstance(link, socket.gaierror) for link in chain):
        return f"the name {urlsplit(constants.ENDPOINT).hostname} cannot be resolved (no network, or no DNS)", mirror
    if any("Timeout" in name for name in names):
        return f"no answer within {constants.HF_HUB_DOWNLOAD_TIMEOUT} s (HF_HUB_DOWNLOAD_TIMEOUT)", mirror
    if "ProxyError" in names:
        return f"the proxy refuses: {_line(error)}", "check HTTPS_PROXY and HTTP_PROXY"
    if names & {"RemoteProtocolError", "ReadError"} or "Consistency check" in str(error):
        return "the connection broke off during the download", f"try again (what is complete is kept), or {mirror}"
    if "ConnectError" in names or any(isinstance(link, ConnectionError) for link in chain):
        return f"no connection ({_line(error)})", mirror
    return f"not an answer of a hub ({type(error).__name__}: {_line(error)})", "check HF_ENDPOINT"


def _http_diagnosis(request: _Request, error: errors.HfHubHTTPError) -> tuple[str, str]:
    status = error.response.status_code
    page = f"{constants.ENDPOINT}/{request.name}"
    if isinstance(error, errors.GatedRepoError):
        terms = f"accept its terms on {page} and set HF_TOKEN to a token of that account"
        return f"access to it is gated ({status})", terms
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no branch, tag or commit {request.revision!r} ({status})", f"see {page}/tree/{DEFAULT_REVISION}"
    if status == 401:
        token = "set HF_TOKEN to a token that may read it, if it is private; else check the spelling"
        return "it does not exist or is private (401)", token
    if status == 403:
        return "access is forbidden (403)", "set HF_TOKEN to a token that may read it"
    if status == 404 or isinstance(error, errors.RepositoryNotFoundError):
        spelling = "check the spelling, or give a local folder"
        return f"there is no such model ({status}), and no folder of that name here", spelling
    if status == 429:
        return "too many requests (429)", "wait some minutes, or set HF_TOKEN, which has a higher limit"
    return f"the hub answers {status}", f"try again later, set HF_ENDPOINT to a mirror, or {_offline_remedy(request)}"


def _offline_remedy(request: _Request) -> str:
    """Advice that fits: to use the cached copy where there is a complete one."""
    cached = _cached_folder(request)
    if cached is not None and not _lacking(cached, request):
        return f"set HF_HUB_OFFLINE=1 to use the copy in the cache, which is complete (commit {cached.name[:12]})"
    return "give a local folder (with a complete copy in the cache, HF_HUB_OFFLINE=1 would do)"


def _came_from_xet(error: BaseException) -> bool:
    """Whether it was raised by hf_xet, which fetches what the hub keeps in its Xet storage.

    Its errors are plain ConnectionError, RuntimeError and others, so only the call in the traceback tells them apart.
    """
    return any(frame.f_code.co_name == "xet_get" for frame, _ in traceback.walk_tb(error.__traceback__))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _line(error: BaseException) -> str:
    """The first line of what an error says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
