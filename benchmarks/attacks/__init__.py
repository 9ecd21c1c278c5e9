"""Kernels that cheat, a judge naive enough to believe them, and the proof that the real one does not."""
