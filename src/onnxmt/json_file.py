"""Reading one JSON object from a checkpoint's file, with errors that say where in the file the fault is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnxmt.errors import CheckpointError, MissingFileError

# config.json and the like take kilobytes, and the shard index of a 50 GB model under one megabyte: what is larger than
# this is some other file under a wrong name, and is not worth the memory of parsing it.
LIMIT = 64 * 2**20


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; MissingFileError or CheckpointError otherwise."""
    try:
        size = path.stat().st_size
        if size > LIMIT:
            raise CheckpointError(f"{path} has {size} bytes, too many for the JSON file it should be (at most {LIMIT})")
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} is missing") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CheckpointError(f"{path} is not valid JSON: {error.msg} at {where}") from error
    except (ValueError, RecursionError) as error:  # a number of over 4,300 digits; brackets nested by the thousand
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}, where an object {{…}} is expected")
    return value
