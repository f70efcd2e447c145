"""`onnxmt doctor`: names what is wrong with a folder of ONNX graphs, or with this installation, and how to mend it."""
