#!/bin/sh
# What the container runs: the bundle at /bundle where there is one, else the demo model. Arguments go to `serve`.
set -eu
if [ -f /bundle/manifest.json ]; then
  set -- --model /bundle "$@"
fi
exec onnxmt serve --host 0.0.0.0 --port 8000 "$@"
