"""The example in C: compiled against the installed onnxruntime's library, it gives the library's tokens."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import onnxruntime
import pytest

from tests.layouts.single_demo import BEAMS, EXAMPLES, export_demo, judged

INCLUDE = os.environ.get("ONNXRUNTIME_INCLUDE", "")
needs_header = pytest.mark.skipif(
    shutil.which("gcc") is None or not (Path(INCLUDE) / "onnxruntime_c_api.h").is_file(),
    reason="needs gcc, and ONNXRUNTIME_INCLUDE to name the folder of onnxruntime_c_api.h, which no Python package holds",
)


@needs_header
def test_c_gives_the_library_tokens(tmp_path: Path) -> None:
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    program = tmp_path / "translate"
    source = str(EXAMPLES / "onnxruntime-c" / "translate.c")
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", INCLUDE, source, "-o", str(program), str(library)],
        check=True,
    )
    lines = "".join(f"{' '.join(map(str, one.ids))}\n" for one in judged())
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    for beams in BEAMS:
        model = export_demo(tmp_path, beams=beams) / "model.onnx"
        command = [str(program), str(model)]
        done = subprocess.run(
            command, input=lines, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stdout.splitlines() == [" ".join(map(str, one.tokens[beams])) for one in judged()]
