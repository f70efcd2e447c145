"""The model that ships with onnxmt: its checkpoint, and the bundle made from it."""
