"""What deploy/ names exists: metrics, ports, addresses, options; and Prometheus's own tool accepts the rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from onnxmt.runtime.translator import Translator
from onnxmt.serve import create_app
from onnxmt.serve.guard import MemoryGuard
from tests.cli.harness import ROOT

DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b(?:onnxmt|process)_[a-z_]+\b")


@pytest.fixture(scope="module")
def metrics(translator: Translator) -> set[str]:
    """The names that a service gives which has done, warned of, and refused something."""
    with TestClient(create_app(translator)) as client:
        assert client.post("/v1/translate", json={"text": "The library opens.", "max_new_tokens": 1}).status_code == 200
        client.app.state.onnxmt.service.guard = MemoryGuard(1, held=lambda: 2)  # type: ignore[attr-defined]
        client.app.state.onnxmt.service._running = 1  # type: ignore[attr-defined]
        assert client.post("/v1/translate", json={"text": "Yes."}).status_code == 503
        page = client.get("/metrics").text
    return {line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#")} - {""}


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_every_metric_of_the_dashboard_exists(metrics: set[str]) -> None:
    board = json.loads((DEPLOY / "grafana" / "onnxmt.json").read_text(encoding="utf-8"))
    named = {
        name for panel in board["panels"] for target in panel["targets"] for name in METRIC.findall(target["expr"])
    }
    assert len(board["panels"]) >= 12
    assert named - metrics == set()
    # and the dashboard shows every metric of ours
    ours = {name for name in metrics if name.startswith("onnxmt_") and not name.endswith("_created")}
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in ours}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert whole - shown == set()


def test_every_metric_of_the_alerts_exists(metrics: set[str]) -> None:
    (rules,) = documents(DEPLOY / "prometheus" / "onnxmt-alerts.yaml")
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert {name for expression in expressions for name in METRIC.findall(expression)} - metrics == set()


def test_every_metric_of_the_autoscaler_and_the_docs_exists(metrics: set[str]) -> None:
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metrics} | metrics
    for path in (
        DEPLOY / "kubernetes" / "autoscaler.yaml",
        DEPLOY / "adapter-values.yaml",
        ROOT / "docs" / "service.md",
    ):
        found = METRIC.findall(path.read_text(encoding="utf-8"))
        named = {name for name in found if not name.endswith("_")}  # `onnxmt_canary_*` names a family
        assert named, path
        assert named - whole == set(), path


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's prometheus is not installed")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "deploy/prometheus/onnxmt-alerts.yaml"),
        ("check", "config", "deploy/prometheus/prometheus.yaml"),
        ("test", "rules", "tests/serve/alerts_test.yaml"),
    ],
)
def test_prometheus_accepts_it(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubernetes_asks_what_there_is(client: TestClient) -> None:
    deployment, service, _ = documents(DEPLOY / "kubernetes" / "onnxmt.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert client.get(container[probe]["httpGet"]["path"]).status_code == 200
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "512Mi"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    (scaler,) = documents(DEPLOY / "kubernetes" / "autoscaler.yaml")
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_compose_names_files_that_there_are() -> None:
    (compose,) = documents(ROOT / "compose.yaml")
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            place = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
            assert (ROOT / place).exists(), place
    assert compose["services"]["onnxmt"]["mem_limit"] == "512m"


def test_the_image_is_made_of_files_that_there_are() -> None:
    allowed = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = re.findall(
        r"^COPY (?!--from|--chown)(?:--\S+ )*(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    files = {name.removeprefix("./") for line in copied for name in line.split()}
    assert files == set(allowed)
    assert all((ROOT / name).exists() for name in files)


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")])
def test_the_containers_command(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    stand_in = tmp_path / "onnxmt"
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["sh", DEPLOY / "start.sh", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["serve", "--host", "0.0.0.0", "--port", "8000", *arguments]
