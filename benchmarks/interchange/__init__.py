"""Exchange with flashinfer-bench 0.1.2: inputs that its data sets captured, its Solutions, its Traces of results.

    python -m benchmarks judge TASK PATH --trace FOLDER                    dataset.py
    python -m benchmarks judge TASK SOLUTION.json                          solution.py
    python -m benchmarks export-solution PATH --out SOLUTION.json
    python -m benchmarks export-trace REPORT.json --out FILE.jsonl         trace.py
    python -m benchmarks compare FILE.jsonl OTHER.jsonl::SOLUTION

The schema is that of flashinfer_bench.data (https://pypi.org/project/flashinfer-bench), which is not needed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import fields
from benchmarks.fields import Fields
from kernels.task import BadInputError


def read_traces(path: Path) -> Iterator[Fields]:
    """The Traces of a JSON Lines file, one a line; `BadInputError` names file and line."""
    for number, line in enumerate(fields.read_text(path).split("\n"), 1):
        if line.strip():
            where = f"{path} line {number}"
            yield Fields(fields.loads(line, where), f"{where}: trace")


def write(out: Path, text: str) -> None:
    """Write a file; `BadInputError` if it cannot be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{out}: cannot be written: {error.strerror}") from None
