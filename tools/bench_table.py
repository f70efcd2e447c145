"""Reproduce the speed table of README.md and docs/performance.md: export a checkpoint in several precisions, and bench.

Needs the extra `export`, and for the peers torch, transformers and ctranslate2, here or in a Python named by
--peer-python. Run it on a quiet machine: engines take turns, but other programs disturb them all.

usage: python tools/bench_table.py CHECKPOINT [--news FILE] [--peers LIST] [--peer-python PEER=PATH] [--rounds N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

# Precision, and whether the head is trimmed to the target side's tokens.
VARIANTS = [(precision, trimmed) for precision in ("int8", "int4", "int8-dynamic") for trimmed in (False, True)]


def onnxmt(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "onnxmt", *map(str, arguments)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--news", type=Path, help="a file of sentences, for the throughput of a corpus")
    parser.add_argument("--peers", default="torch,ctranslate2")
    parser.add_argument("--peer-python", action="append", default=[])
    parser.add_argument("--rounds", default="10")
    options = parser.parse_args()
    peers = ["--peers", options.peers, "--checkpoint", options.checkpoint]
    peers += [part for pair in options.peer_python for part in ("--peer-python", pair)]
    with tempfile.TemporaryDirectory() as scratch:
        bundles = []
        for precision, trimmed in VARIANTS:
            bundles.append(Path(scratch) / (f"{precision}-trimmed" if trimmed else precision))
            extra = ["--trim-head"] if trimmed else []
            onnxmt("export", options.checkpoint, "--precision", precision, *extra, "-o", bundles[-1])
        onnxmt("bench", *bundles, *peers, "--beams", "1,4", "--rounds", options.rounds, "--markdown")
        if options.news is not None:
            work = ["--sentences", options.news, "--limit", "1000", "--target-tokens", "source", "--beams", "1"]
            work += ["--threads", "1", "--concurrency", "2", "--batch", "32,64,128", "--rounds", "3"]
            onnxmt("bench", *bundles, *peers, *work, "--markdown")


if __name__ == "__main__":
    main()
