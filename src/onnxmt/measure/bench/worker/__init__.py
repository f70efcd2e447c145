"""What runs in an engine's own process. `run.py` is started by its path, for a peer's Python may lack onnxmt."""
