"""Pure functions on text: segmentation, protected spans, the Chinese output profile, fidelity checks, casing."""
