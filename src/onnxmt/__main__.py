"""`python -m onnxmt` is the same as `onnxmt`."""

from onnxmt.cli import main

raise SystemExit(main())
