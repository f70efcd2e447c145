from __future__ import annotations

import subprocess
import sys

import pytest

import onnxmt


def test_every_public_name_is_there() -> None:
    for name in onnxmt.__all__:
        assert getattr(onnxmt, name) is not None
    assert set(onnxmt.__all__) <= set(dir(onnxmt))
    assert set(onnxmt._HOME) | {"__version__"} == set(onnxmt.__all__)
    assert sorted(onnxmt.__all__) == onnxmt.__all__


def test_names_are_the_rooms_own() -> None:
    from onnxmt.runtime.translator import Translator

    assert onnxmt.Translator is Translator


def test_a_wrong_name_says_which_there_are() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'translate'; it has .*Translator"):
        onnxmt.translate  # noqa: B018


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import onnxmt", "numpy onnxruntime onnx onnxscript onnx_ir torch transformers sentencepiece typer rich"),
        ("from onnxmt import OnnxmtError", "numpy onnxruntime onnx torch"),
        (
            "from onnxmt import Translator",
            "onnx onnxscript onnx_ir torch transformers safetensors huggingface_hub typer",
        ),
    ],
)
def test_imports_are_lazy(code: str, absent: str) -> None:
    check = f"{code}; import sys; print(*[name for name in {absent.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


def test_a_public_function_stays_one_after_its_module_was_imported() -> None:
    """`from onnxmt import migrate` once gave a module: a submodule of the same name hid the function."""
    code = (
        "import importlib, pkgutil, onnxmt\n"
        "for module in pkgutil.iter_modules(onnxmt.__path__):\n"
        "    assert module.name not in onnxmt.__all__, module.name\n"
        "from onnxmt import export, inspect, migrate, quantize, verify\n"
        "assert all(map(callable, (export, inspect, migrate, quantize, verify, onnxmt.migrate)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
