"""A report as people read it in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from benchmarks import statistics
from benchmarks.report import RUN_ONLY, Report, Row

BAR = 12


def lines(report: Report) -> Iterator[str]:
    """Headline, rows grouped by batch size, findings, where the time went."""
    yield f"{report.candidate['name']} ({report.candidate['language']}) on {report.task}: {headline(report)}"
    if report.message:
        yield f"  {report.message}"
    for holdout in report.holdouts:
        if holdout["status"] != "passed":
            yield f"  {holdout['status']}: {holdout['message']}"
    sizes = sorted({row.batch_size for row in report.rows if row.status != "not_run"})
    for size in sizes:
        yield from _group(size, [row for row in report.rows if row.batch_size == size])
    not_run = sum(row.status == "not_run" for row in report.rows)
    if not_run:
        yield f"\n{not_run} of {len(report.rows)} workloads not run"
    yield from (f"finding: {finding['message']}" for finding in report.findings)
    yield from (f"  {sentence}" for sentence in report.profile.get("advice", []))
    yield _conditions(report)


def headline(report: Report) -> str:
    """One line: the geometric mean with all that it needs to be understood, or how far the candidate came."""
    summary = report.summary()
    if summary is None:
        return f"{report.status}, {report.passed}/{len(report.rows)} passed"
    low, high = summary.interval_95 or (summary.geomean, summary.geomean)
    verified = "verified" if report.verified else "not verified"
    return (
        f"{summary.geomean:.3f}x (geometric mean of {len(report.rows)}, 95 % {low:.3f} to {high:.3f}), "
        f"{summary.wins} faster, worst {summary.worst[1]:.3f}x, {RUN_ONLY}, {report.repeats} rounds, {verified}"
    )


def _group(size: int, rows: list[Row]) -> Iterator[str]:
    timed = [median(row.scopes[RUN_ONLY].ratios) for row in rows if RUN_ONLY in row.scopes]
    mean = f", geometric mean {statistics.geometric_mean(timed):.3f}x" if len(timed) == len(rows) else ""
    yield f"\nbatch {size}{mean}"
    yield f"  {'workload':<10}{'tokens':>8}{'baseline us':>13}{'candidate us':>14}{'floor us':>10}  speedup"
    for row in rows:
        if row.status != "not_run":
            yield from _row(row)


def _row(row: Row) -> Iterator[str]:
    head = f"  {row.workload[:8]:<10}{row.tokens:>8}"
    timing = row.scopes.get(RUN_ONLY)
    if timing is None:
        yield f"{head}  {row.status}" + "".join(f"\n      {line}" for line in row.message.splitlines()[:6])
        return
    speedup = median(timing.ratios)
    floor = f"{row.floor_us:>10.1f}" if row.floor_us is not None else f"{'-':>10}"
    yield (
        f"{head}{median(timing.baseline_us):>13.1f}{median(timing.candidate_us):>14.1f}{floor}"
        f"  {speedup:5.2f}x {_bar(speedup)}"
    )


def _bar(speedup: float) -> str:
    """A bar around 1.0: to the left slower, to the right faster, a doubling is four characters."""
    steps = max(-BAR, min(BAR, round(4 * math.log2(speedup))))
    return " " * (BAR + min(0, steps)) + "-" * -min(0, steps) + "|" + "+" * max(0, steps)


def _conditions(report: Report) -> str:
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in report.seconds.items())
    versions = sorted(set(report.conditions.get("baseline_versions", {})))
    return (
        f"\non {report.conditions.get('device')}; sandbox: {report.environment.get('sandbox')}; "
        f"baselines: {', '.join(versions)}\n{seconds}"
    )
