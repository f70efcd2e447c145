"""Help, usage errors, and what a command says when something breaks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import onnxmt
from onnxmt import cli, commands
from onnxmt.commands import _application
from onnxmt.errors import LimitMissedError, SessionError, WeightsError
from tests.cli.harness import environment, invoke, run

pytestmark = pytest.mark.lowest

HEAVY = ("numpy", "onnxruntime", "onnx", "onnx_ir", "onnxscript", "torch", "transformers", "rich", "sentencepiece")


def test_help_names_every_verb_once_with_a_summary_and_shows_examples() -> None:
    outcome = invoke("--help")
    assert outcome.code == 0
    assert outcome.err == ""
    for verb in ("migrate", "export", "verify", "translate", "inspect"):
        lines = [line for line in outcome.lines if line.startswith(f"  {verb}  ")]
        assert len(lines) == 1, verb
        assert not lines[0].endswith("..."), "the summary is cut: say it in fewer words"
    assert '  onnxmt translate "Good morning."' in outcome.text
    for title in commands.SECTIONS:
        assert f"\n{title}:\n" in outcome.text


@pytest.mark.parametrize("verb", _application.verbs())
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    outcome = invoke(verb, "--help")
    assert outcome.code == 0
    assert f"onnxmt {verb}" in outcome.text.partition("Example")[2]
    assert invoke(verb, "-h").text == outcome.text


def test_help_imports_nothing_heavy() -> None:
    """What keeps `onnxmt --help` below 0.3 s; the time itself depends on the machine."""
    code = (
        "import sys; sys.argv = ['onnxmt', '--help']\nfrom onnxmt.cli import main\nassert main() == 0\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version() -> None:
    assert invoke("--version").text == f"onnxmt {onnxmt.__version__}\n"


def test_nothing_asked_shows_the_help_and_is_wrong_use() -> None:
    outcome = invoke()
    assert outcome.code == 2
    assert outcome.text == invoke("--help").text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["migrat", "x"], "No such command 'migrat'. Did you mean 'migrate'? See: onnxmt --help"),
        (["export"], "Missing argument 'MODEL'. See: onnxmt export --help"),
        (["translate", "--beams", "0", "x"], "--beams"),
        (["translate", "--bems", "2", "x"], "No such option: --bems"),
        (["migrate", "x", "--verify", "maybe"], "'maybe' is not one of 'auto', 'live', 'recording', 'none'"),
        (["export", "a", "b"], "unexpected extra argument"),
        (["translate", "--provider", "tpu", "Hi."], "provider is 'tpu'; allowed: cpu, cuda"),
        (
            ["export", "demo", "--precision", "fp8"],
            "precision 'fp8' is not known: 'fp8' is no preset; allowed: fp32, fp16",
        ),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    assert said in invoke(*arguments).error()


def test_json_repeats_the_error_on_standard_output() -> None:
    outcome = invoke("export", "/no/such/model", "--json")
    message = outcome.error()
    assert json.loads(outcome.text) == {"error": message, "kind": "ModelNotFoundError"}
    assert invoke("translate", "--json", "--bems", "2").objects[0]["kind"] == "UsageError"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (SessionError("refused:\n  line two\x1b[31m"), 2, "refused: line two\\x1b[31m"),
        (
            WeightsError("w.bin", ["a is missing", "b is missing"]),
            2,
            "w.bin have 2 problems: a is missing; b is missing",
        ),
        (LimitMissedError("BLEU fell by 2"), 1, "BLEU fell by 2"),
        (ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript"), 2, "pip install 'onnxmt[export]'"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 2, "pip install 'onnxmt[reference]'"),
        (ModuleNotFoundError("No module named 'nose'", name="nose"), 2, "this is a bug in onnxmt: ModuleNotFoundError"),
        (KeyError("x"), 2, "this is a bug in onnxmt: KeyError: 'x' (--debug shows where; please report it)"),
        (MemoryError(), 2, "there is not enough memory"),
        (KeyboardInterrupt(), 2, "interrupted by SIGINT; nothing half-written is left"),
    ],
)
def test_each_exception_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, said: str
) -> None:
    def explode(_arguments: object) -> int:
        raise raised

    monkeypatch.setattr(_application, "run", explode)
    outcome = invoke("export", "x")
    assert outcome.code == code
    assert outcome.err.count("\n") == 1
    assert said in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("arguments", [["--debug", "export", "/nope"], ["export", "/nope", "--debug"]])
def test_debug_shows_the_traceback_anywhere_on_the_line(arguments: list[str]) -> None:
    outcome = invoke(*arguments)
    assert outcome.code == 2
    assert "Traceback (most recent call last)" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("onnxmt: error: '/nope' names no model")


def test_debug_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXMT_DEBUG", "1")
    assert "Traceback" in invoke("export", "/nope").err
    monkeypatch.setenv("ONNXMT_DEBUG", "0")
    assert "Traceback" not in invoke("export", "/nope").err


def test_after_two_dashes_everything_is_text() -> None:
    from tests.cli.harness import GOLDEN

    outcome = invoke("translate", "--model", GOLDEN, "--max-new-tokens", "1", "--", "--debug", "--json")
    assert outcome.code == 0
    assert len(outcome.lines) == 2
    assert not outcome.text.startswith("{")


def test_signal_handlers_are_put_back() -> None:
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    invoke("--version")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_process_of_its_own_does_the_same() -> None:
    assert "names no model" in run("export", "/no/such/model").error()
    assert run("--version").text == f"onnxmt {onnxmt.__version__}\n"


@pytest.mark.parametrize("text", ["plain", "汉字 ﬁ"])
def test_printable_leaves_ordinary_text(text: str) -> None:
    assert cli.printable(text) == text


def test_printable_shows_what_a_terminal_would_act_on() -> None:
    assert cli.printable("a\x1b]0;x\x07\r\nb\udcff\u202e") == "a\\x1b]0;x\\x07 b\\udcff\\u202e"
