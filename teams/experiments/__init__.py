"""Experiments: the same task for several strategies and many seeds, and what follows from it."""
