"""Build the ready bundle that ships with onnxmt (src/onnxmt/demo/bundle) from the demo checkpoint beside it.

Needs the extra `export`; no torch: the graphs are proved by the recorded reference in the checkpoint's folder.
usage: python tools/build_demo_bundle.py
"""

from __future__ import annotations

from pathlib import Path

from onnxmt.migration import MigrateOptions, migrate
from onnxmt.precision import PRESETS

BUNDLE = Path(__file__).parents[1] / "src" / "onnxmt" / "demo" / "bundle"


def main() -> None:
    options = MigrateOptions(precision=PRESETS["fp32"], verify="recording", overwrite=True)
    result = migrate("demo", BUNDLE, options=options)
    size = result.bundle.size / 1e6
    print(f"{BUNDLE.name}: {size:.1f} MB, verification {result.bundle.manifest.verification.status}")


if __name__ == "__main__":
    main()
