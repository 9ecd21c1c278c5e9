"""Two reports side by side, if they are alike enough to be compared."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import statistics
from benchmarks.report import Report
from kernels.task import BadInputError


def differences(first: Report, second: Report) -> list[str]:
    """What makes two reports unlike, in words; empty when they may be ranked."""
    found = [f"task: {first.task} / {second.task}"] if first.task != second.task else []
    for key in sorted({*first.conditions, *second.conditions} - {"workloads"}):
        a, b = first.conditions.get(key), second.conditions.get(key)
        if a != b:
            found.append(f"{key}: {a} / {b}")
    return found


def lines(first: Report, second: Report, scope: str) -> Iterator[str]:
    """The comparison for people; `BadInputError` if conditions differ or a report has no such figures."""
    if unlike := differences(first, second):
        raise BadInputError("these reports cannot be compared, their conditions differ:\n  " + "\n  ".join(unlike))
    for report in (first, second):
        if not report.ratios(scope):
            raise BadInputError(f"{report.candidate['name']} ({report.status}) has no times in scope {scope}")
    try:
        result = statistics.compare(first.ratios(scope), second.ratios(scope))
    except ValueError as error:
        raise BadInputError(str(error)) from None
    names = f"{first.candidate['name']} / {second.candidate['name']}"
    low, high = result.interval_95 or (result.ratio, result.ratio)
    verdict = "no difference beyond noise" if result.is_tie else "a difference"
    yield (
        f"{names}: {result.ratio:.3f} (geometric mean of {len(result.rows)} common workloads, 95 % "
        f"{low:.3f} to {high:.3f}): {verdict}"
    )
    yield f"faster on {len(result.faster)}, slower on {len(result.slower)}, tied on {len(result.ties)}"
    if result.dropped:
        yield f"left out, in one report only: {', '.join(w[:8] for w in result.dropped)}"
    for workload, ratio in result.rows.items():
        mark = "~" if workload in result.ties else " "
        yield f"  {workload[:8]}  {ratio:6.3f} {mark}"
