"""From an experiment's runs to its report, as data and as words. Means and intervals: benchmarks/statistics.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import statistics
from teams.experiments.plan import Plan

Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Records by arm and seed."""


def analyse(plan: Plan, runs: Runs) -> dict[str, Any]:
    """Every arm's repeats, medians and courses, and each arm against the one that the plan names."""
    return {
        "name": plan.name, "why": plan.why, "task": plan.task, "device": plan.device, "candidates": plan.candidates,
        "seeds": list(plan.seeds), "against": plan.against,
        "arms": {arm.name: _arm(plan, runs.get(arm.name, {})) for arm in plan.arms},
        "comparisons": {
            arm.name: _against(plan, runs.get(plan.against, {}), runs.get(arm.name, {}))
            for arm in plan.arms
            if arm.name != plan.against
        },
    }  # fmt: skip


def best_so_far(record: Mapping[str, Any], candidates: int) -> list[float]:
    """The best claim after each candidate, up to the plan's number; a run that ended sooner keeps its last."""
    claims = [claim or 0.0 for _, claim in record["course"]][:candidates]
    return claims + [claims[-1] if claims else 0.0] * (candidates - len(claims))


def needed(record: Mapping[str, Any], target: float) -> int | None:
    """Candidates judged until a verification reached the target; None if none did."""
    return min((at for at, geomean in record["verified_at"] if geomean >= target), default=None)


def _arm(plan: Plan, runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    finals = [r["geomean"] for r in runs.values() if r["geomean"] is not None]
    courses = [best_so_far(r, plan.candidates) for r in runs.values()]
    return {
        "runs": len(runs), "without_a_verified_result": len(runs) - len(finals),
        "verified": {str(seed): r["geomean"] for seed, r in runs.items()},
        "median": median(finals) if finals else None, "best": max(finals, default=None),
        "worst": min(finals, default=None), "interval_95": statistics.median_interval(finals),
        "judging_seconds": median(r["course"][-1][0] for r in runs.values() if r["course"]) if runs else None,
        "area": median(map(statistics.area, courses)) if courses else None,
        "needed": {f"{t:g}": _needed(plan, runs, t) for t in plan.targets},
        "course": [list(statistics.quartiles([c[k] for c in courses])) for k in range(plan.candidates) if courses],
        "changes": _changes(runs),
    }  # fmt: skip


def _needed(plan: Plan, runs: Mapping[int, Mapping[str, Any]], target: float) -> dict[str, Any]:
    counts = _counts(plan, runs.values(), target)
    reached = sum(c <= plan.candidates for c in counts)
    middle = median(counts) if counts else None
    return {"reached": reached, "median": middle if middle is None or middle <= plan.candidates else None}


def _counts(plan: Plan, runs: Any, target: float) -> list[int]:
    """Candidates needed; one more than the budget where it did not suffice."""
    return [needed(r, target) or plan.candidates + 1 for r in runs]


def _changes(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What restructurings were worth, by cause: outcomes, and the median gain of the verified best in their windows."""
    found: dict[str, dict[str, Any]] = {}
    for one in (change for record in runs.values() for change in record["changes"]):
        kind = found.setdefault(one["cause"], {"made": 0, "outcomes": {}, "gains": []})
        kind["made"] += 1
        outcome = one["outcome"] or "not measured"
        kind["outcomes"][outcome] = kind["outcomes"].get(outcome, 0) + 1
        if one["before"] and one["after"]:
            kind["gains"].append(one["after"] / one["before"])
    return {
        cause: {"made": k["made"], "outcomes": k["outcomes"], "median_gain": median(k["gains"]) if k["gains"] else None}
        for cause, k in found.items()
    }


def _against(
    plan: Plan, ours: Mapping[int, Mapping[str, Any]], theirs: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """The plan's arm against another, seed by seed: below 1 it needs fewer candidates, above 0 it has more area."""
    seeds = [seed for seed in plan.seeds if seed in ours and seed in theirs]
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    areas = [
        statistics.area(best_so_far(a, plan.candidates)) - statistics.area(best_so_far(b, plan.candidates))
        for a, b in pairs
    ]
    finals = [(a["geomean"], b["geomean"]) for a, b in pairs if a["geomean"] and b["geomean"]]
    return {
        "seeds": len(seeds),
        "needed": {
            f"{target:g}": statistics.ratio_of_medians(
                _counts(plan, [a for a, _ in pairs], target), _counts(plan, [b for _, b in pairs], target)
            )
            for target in plan.targets
        },
        "area": statistics.mean_difference(areas),
        "final": statistics.ratio_of_medians([a for a, _ in finals], [b for _, b in finals]),
        "area_wins": sum(a > 0 for a in areas),
    }


def in_words(report: Mapping[str, Any]) -> str:
    """The report in Markdown."""
    arms, seeds = report["arms"], report["seeds"]
    targets = list(next(iter(arms.values()))["needed"]) if arms else []
    heads = ["arm", "runs", "median", "95 %", "best", "worst", "area", *(f"to {t}x" for t in targets), "judging s"]
    about = (
        f"{report['task']} on {report['device']}, {report['candidates']} candidates a run, {len(seeds)} seeds "
        f"({seeds[0]} to {seeds[-1]}). Median, best and worst are verified geometric means; area is the mean of the "
        "logarithm of the best claim on the smoke workloads after each candidate; `to` is the median number of "
        "candidates until a verification reached that mean, and in how many runs one did."
    )
    lines = [f"# {report['name']}", "", report["why"], "", about, "", *_head(heads)]
    for name, arm in arms.items():
        reach = [f"{_number(n['median'], 0)} ({n['reached']})" for n in arm["needed"].values()]
        cells = [name, str(arm["runs"]), _x(arm["median"]), _interval(arm["interval_95"]), _x(arm["best"]),
                 _x(arm["worst"]), _number(arm["area"], 3), *reach, _number(arm["judging_seconds"], 0)]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    about = "Ratios of medians and mean differences over the seeds that both have, with 95 % bootstrap intervals."
    heads = ["against", "seeds", *(f"candidates to {t}x" for t in targets), "verified", "area", "seeds with more area"]
    lines += ["", f"## {report['against']} against the others", "", about, "", *_head(heads)]
    for name, one in report["comparisons"].items():
        cells = [name, str(one["seeds"]), *(_estimate(e) for e in one["needed"].values()), _estimate(one["final"]),
                 _estimate(one["area"]), str(one["area_wins"])]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## What changes of team were worth", ""]
    for name, arm in arms.items():
        for cause, change in arm["changes"].items():
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(change["outcomes"].items()))
            lines.append(
                f"- {name}, {cause}: {change['made']} made; {outcomes}; median gain {_x(change['median_gain'])}"
            )
    return "\n".join(lines) + "\n"


def _head(names: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def _x(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(value: Sequence[float] | None) -> str:
    return "-" if value is None else f"{value[0]:.3f} to {value[1]:.3f}"


def _estimate(value: Mapping[str, Any] | None) -> str:
    return "-" if value is None else f"{value['value']:.3f} ({_interval(value['interval_95'])})"
