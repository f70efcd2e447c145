"""Where translated lines go: standard output, or a file that appears when it is complete."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from onnxmt.errors import OutputError


class Sink:
    """Context manager; each write is flushed, so that a reader sees a line when it is done.

    A file is written beside its place and renamed at the end: an interrupted run leaves what was there before. Pipes
    and devices are written straight. Raises OutputError, and BrokenPipeError when the reader has gone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None or str(path) == "-" else path
        self._temporary: Path | None = None
        self._stream: BinaryIO

    def __enter__(self) -> Sink:
        if self._path is None:
            self._stream = sys.stdout.buffer
            return self
        try:
            target = self._path.resolve()  # a link stays, the file behind it is replaced
            if target.is_dir():
                raise OutputError(f"the output {self._path} is a folder; name a file")
            if not target.exists() or target.is_file():
                if target.exists() and not os.access(target, os.W_OK):
                    raise OutputError(f"the output {self._path} is not writable")
                self._temporary = target.with_name(f".{target.name}.onnxmt-partial-{secrets.token_hex(4)}")
            self._stream = (self._temporary or target).open("wb")
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise self._failed(error) from error
        return self

    def write(self, data: bytes) -> None:
        """Write and flush."""
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is None:
            return
        try:
            self._stream.close()
            if self._temporary is not None and error is None:
                self._temporary.replace(self._path.resolve())
        except OSError as failed:
            if error is None:
                raise self._failed(failed) from failed
        finally:
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write {self._path or 'to standard output'}: {error.strerror or error}")
