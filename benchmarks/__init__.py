"""How a candidate is judged: `python -m benchmarks --help`. Needs torch; never Django."""
