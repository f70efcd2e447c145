"""This installation and machine: versions, providers, CPU features, threads, and what does not fit together."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnxruntime

from onnxmt.doctor.findings import Examination, Finding
from onnxmt.inspection.bundle_view import threads_reason
from onnxmt.runtime.cpu import cpu_limit
from onnxmt.runtime.cpu_features import CpuFeatures, cpu_features

__all__ = ["Installation", "examine_installation", "installation"]

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:\(?>=\s*([0-9][0-9.]*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)")
# Packages that hold the same module: of two, pip leaves a mixture of both.
_RIVALS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-rocm")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What this package asks for: `extra` "" for the base install, `least` "" for any version."""

    name: str
    least: str
    extra: str


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is there: versions by package, what onnxmt asks for, providers, CPU, threads, environment variables."""

    versions: Mapping[str, str]
    requirements: tuple[Requirement, ...]
    providers: tuple[str, ...]
    cpu: CpuFeatures
    threads: int
    threads_reason: str
    variables: Mapping[str, str]


def installation() -> Installation:
    """Look at this process's installation and machine."""
    requirements = tuple(_requirements(importlib.metadata.requires("onnxmt") or []))
    limit = cpu_limit()
    names = ("ONNXMT_STORE", "HF_ENDPOINT", "HF_HUB_OFFLINE", *_THREAD_VARIABLES)
    return Installation(
        versions={
            name: version
            for name in ("onnxmt", *dict.fromkeys([r.name for r in requirements]), *_RIVALS)
            if (version := _version(name)) is not None
        },
        requirements=requirements,
        providers=tuple(onnxruntime.get_available_providers()),
        cpu=cpu_features(),
        threads=limit.threads,
        threads_reason=threads_reason(limit),
        variables={name: os.environ[name] for name in names if os.environ.get(name)},
    )


def examine_installation(found: Installation) -> Examination:
    """Say what does not fit together, and list the rest."""
    return Examination(what="this installation", findings=tuple(_findings(found)), notes=tuple(_notes(found)))


def _findings(found: Installation) -> Iterator[Finding]:
    rivals = [name for name in _RIVALS if name in found.versions]
    if len(rivals) > 1:
        yield Finding(
            kind="installation",
            where=" and ".join(rivals),
            found="they hold the same module, and which files are in use depends on the order of installation",
            mend=f"pip uninstall {' '.join(rivals)}, then install the one you want",
        )
    for requirement in found.requirements:
        version = found.versions.get(requirement.name)
        if version is not None and requirement.least and _numbers(version) < _numbers(requirement.least):
            yield Finding(
                kind="installation",
                where=requirement.name,
                found=f"version {version} is installed; onnxmt{requirement.extra and f'[{requirement.extra}]'} needs "
                f"{requirement.least} or newer",
                mend=f"pip install -U '{requirement.name}>={requirement.least}'",
            )
    if "CPUExecutionProvider" not in found.providers:
        yield Finding(
            kind="installation",
            where="onnxruntime",
            found=f"it has no CPU provider, only {', '.join(found.providers) or 'none'}",
            mend="install onnxruntime again",
        )
    for name in _THREAD_VARIABLES:
        value = found.variables.get(name, "")
        if value.isdigit() and int(value) > found.threads:
            yield Finding(
                kind="installation",
                where=name,
                found=f"it asks for {value} threads, and the system allows {found.threads_reason}",
                mend=f"unset {name}, or set it to {found.threads} or less",
            )
    endpoint = found.variables.get("HF_ENDPOINT")
    if endpoint is not None and not re.match(r"https?://[^/\s]+/?$", endpoint):
        yield Finding(
            kind="installation",
            where="HF_ENDPOINT",
            found=f"{endpoint!r} is not the address of a hub",
            mend="set it to https://HOST without a path, or unset it",
        )


def _notes(found: Installation) -> Iterator[str]:
    yield "versions: " + ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lacking: dict[str, list[str]] = {}
    for requirement in found.requirements:
        if requirement.extra and requirement.name not in found.versions:
            lacking.setdefault(requirement.extra, []).append(requirement.name)
    yield from (f"extra {extra}: not installed ({', '.join(names)})" for extra, names in lacking.items())
    yield f"providers: {', '.join(found.providers)}"
    features = found.cpu.features
    saturates = found.cpu.saturates
    yield (
        f"CPU: {found.cpu.model or found.cpu.architecture}"
        f" ({'features unknown' if features is None else ', '.join(features) or 'none of the 8-bit features'})"
    )
    if saturates:
        yield "CPU without VNNI: int8 in blocks is exact on it, and 8-bit files of other makers may saturate (case Q1)"
    yield f"threads {found.threads_reason}"
    yield from (f"{name}={value}" for name, value in found.variables.items())


def _requirements(lines: list[str]) -> Iterator[Requirement]:
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is not None:
            extra = _EXTRA.search(line)
            yield Requirement(name=match[1].lower(), least=match[2] or "", extra=extra[1] if extra else "")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; 1.2.0+cpu and 1.2.0rc1 count as 1.2.0."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z-]", version)[0]))
