"""What `onnxmt inspect` shows: a bundle, a checkpoint before its migration, and a drawing of the graphs."""
