"""What the base install runs a bundle with: numpy, onnxruntime and the tokenizers, nothing else."""
