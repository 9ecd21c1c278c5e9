"""The figure of a run: scores over candidates, and under it, on the same axis, who worked in which team.

Light and dark come from one place, the style sheet: Plotly accepts only colours, so each stands for a CSS variable here
(`COLOURS`), and run.js puts in what the variable says.
"""

from __future__ import annotations

from typing import Any

from teams.models import Report, Run, Turn
from teams.supervisor.progress import Judged, Progress, progress_of

COLOURS = {f"#00000{i}": name for i, name in enumerate(("good", "bad", "calm", "accent", "line", "band"), 1)}
GOOD, BAD, CALM, ACCENT, LINE, BAND = COLOURS
CLEAR = "rgba(0,0,0,0)"
LANE_ORDER = ("generalist", "architect", "tuner", "debugger", "analyst", "scout")
FATES = {
    "gain": ("brought a gain", GOOD, ""),
    "none": ("no gain", CALM, "/"),
    "wrong": ("mostly wrong", BAD, "x"),
    "open": ("at work", ACCENT, "."),
}


def run_figure(run: Run) -> dict[str, Any]:
    """Data and layout for Plotly; a figure without data while nothing is judged."""
    # Here, since it takes half a second, which neither the supervisor nor the first page need wait for.
    import plotly.graph_objects as go  # type: ignore[import-untyped]  # noqa: PLC0415

    progress = progress_of(run)
    figure = go.Figure()
    for trace in (_claims(go, progress), _wrong(go, progress), _best_line(go, progress), _verified(go, progress)):
        figure.add_trace(trace)
    lanes = _lanes(run)
    for trace in _turn_bars(go, run, progress, lanes):
        figure.add_trace(trace)
    last = max(len(progress.judged), 1)
    figure.update_layout(
        height=430 + 34 * len(lanes), margin={"l": 90, "r": 20, "t": 60, "b": 46},
        barmode="overlay", hovermode="closest",
        uirevision=run.pk, legend={"orientation": "h", "y": 1.07, "yanchor": "bottom", "x": 0}, template="none",
        xaxis={"title": "candidates judged", "anchor": "y2", "range": [0.4, last + 0.6], "zeroline": False},
        yaxis={"title": "× the baseline", "type": "log", "domain": [0.36, 1], "dtick": "D2", "zeroline": False},
        yaxis2={"domain": [0, 0.3], "categoryorder": "array", "categoryarray": lanes[::-1], "zeroline": False,
                "range": [-0.6, max(len(lanes), 1) - 0.4]},
        shapes=[*_bands(run, last), _baseline(last)], annotations=_marks(run),
    )  # fmt: skip
    plain: dict[str, Any] = figure.to_plotly_json()
    return {"data": _plain(plain["data"]), "layout": _plain(plain["layout"]), "colours": COLOURS}


def _plain(value: Any) -> Any:
    """Plotly's tuples and dictionaries as JSON knows them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _hover(one: Judged) -> str:
    score = f"{one.score:.3f}×" if one.score else one.status
    return f"candidate {one.number} by {one.role}, team {one.team}: {score}"


def _claims(go: Any, progress: Progress) -> Any:
    some = [(i, j) for i, j in enumerate(progress.judged, 1) if j.score]
    return go.Scatter(
        x=[i for i, _ in some], y=[j.score for _, j in some], mode="markers", name="claim (smoke workloads)",
        text=[_hover(j) for _, j in some], hoverinfo="text", marker={"color": CALM, "size": 7},
    )  # fmt: skip


def _wrong(go: Any, progress: Progress) -> Any:
    """What has no score, at the bottom of the score's axis."""
    some = [(i, j) for i, j in enumerate(progress.judged, 1) if not j.score]
    least = min((j.score for j in progress.judged if j.score), default=0.1) * 0.8
    return go.Scatter(
        x=[i for i, _ in some], y=[least] * len(some), mode="markers", name="wrong, or stopped early",
        text=[_hover(j) for _, j in some], hoverinfo="text",
        marker={"color": BAD, "size": 8, "symbol": ["x" if j.failed else "triangle-down-open" for _, j in some]},
    )  # fmt: skip


def _best_line(go: Any, progress: Progress) -> Any:
    xs, ys, best = [], [], 0.0
    for i, one in enumerate(progress.judged, 1):
        if one.score and not one.refuted:
            best = max(best, one.score)
        if best:
            xs.append(i)
            ys.append(best)
    return go.Scatter(x=xs, y=ys, mode="lines", name="best claim so far", line={"color": CALM, "shape": "hv"})


def _verified(go: Any, progress: Progress) -> Any:
    xs = [g.at for g in progress.gains]
    ys = [g.geomean for g in progress.gains]
    text = [f"candidate {g.candidate} verified: {g.geomean:.3f}× on all workloads" for g in progress.gains]
    if xs:
        xs, ys, text = [*xs, len(progress.judged)], [*ys, ys[-1]], [*text, text[-1]]
    return go.Scatter(
        x=xs, y=ys, mode="lines+markers", name="verified best (all workloads)", text=text, hoverinfo="text",
        line={"color": GOOD, "shape": "hv", "width": 3},
        marker={"color": GOOD, "size": [*[11] * (len(xs) - 1), 0] if xs else [], "symbol": "diamond"},
    )  # fmt: skip


def _lanes(run: Run) -> list[str]:
    present = set(run.turns.values_list("role__key", flat=True))
    known = [key for key in LANE_ORDER if key in present]
    return [*known, *sorted(present - set(known))]


def _turn_bars(go: Any, run: Run, progress: Progress, lanes: list[str]) -> list[Any]:
    """A bar for each turn, in its role's lane, from its first candidate to its last; by what came of it."""
    at = {j.number: i for i, j in enumerate(progress.judged, 1)}
    best = _best_before(progress)
    bars: dict[str, list[tuple[str, float, float, str]]] = {fate: [] for fate in FATES}
    for turn in run.turns.select_related("role", "team").prefetch_related("candidates"):
        places = [at[c.number] for c in turn.candidates.all() if c.number in at]
        if not places:
            continue
        fate = _fate(turn, [progress.judged[i - 1] for i in places], best)
        words = f"turn {turn.number}: {turn.role.title}, team {turn.team.number}, {FATES[fate][0]}"
        bars[fate].append((turn.role.key, min(places) - 0.45, max(places) - min(places) + 0.9, words))
    return [_bar(go, fate, some) for fate, some in bars.items() if some]


def _bar(go: Any, fate: str, some: list[tuple[str, float, float, str]]) -> Any:
    name, colour, pattern = FATES[fate]
    return go.Bar(
        orientation="h", y=[s[0] for s in some], base=[s[1] for s in some], x=[s[2] for s in some], yaxis="y2",
        text=[s[3] for s in some], textposition="none", hoverinfo="text", name=f"turn: {name}", width=0.62,
        marker={"color": colour, "pattern": {"shape": pattern, "size": 6, "solidity": 0.25}},
    )  # fmt: skip


def _best_before(progress: Progress) -> dict[int, float]:
    """The best claim before each candidate, by number."""
    found, best = {}, 0.0
    for one in progress.judged:
        found[one.number] = best
        if one.score and not one.refuted:
            best = max(best, one.score)
    return found


def _fate(turn: Turn, judged: list[Judged], best: dict[int, float]) -> str:
    if any(j.score and j.score > best[j.number] * 1.01 for j in judged):
        return "gain"
    if sum(j.failed for j in judged) > len(judged) / 2:
        return "wrong"
    return "none" if turn.ended_at else "open"


def _bands(run: Run, last: int) -> list[dict[str, Any]]:
    """A rectangle for each team but the first's neighbours alike, so that changes show at a glance."""
    teams = list(run.teams.all())
    ends = [*(team.installed_at + 0.5 for team in teams[1:]), last + 0.6][: len(teams)]
    return [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": team.installed_at + 0.5, "x1": end, "y0": 0, "y1": 1,
         "fillcolor": BAND if team.number % 2 == 0 else CLEAR, "line": {"width": 0}, "layer": "below"}
        for team, end in zip(teams, ends, strict=True)
    ]  # fmt: skip


def _baseline(last: int) -> dict[str, Any]:
    return {
        "type": "line", "xref": "x", "yref": "y", "x0": 0.4, "x1": last + 0.6, "y0": 1, "y1": 1,
        "line": {"color": LINE, "dash": "dot"}, "layer": "below",
    }  # fmt: skip


def _marks(run: Run) -> list[dict[str, Any]]:
    """A mark for each restructuring; run.js opens its card when it is clicked."""
    return [
        {"x": made.after.installed_at + 0.5, "y": 1, "xref": "x", "yref": "paper", "yanchor": "bottom",
         "showarrow": False, "text": f"▼ team {made.after.number}", "name": f"restructuring-{made.pk}",
         "captureevents": True, "hovertext": f"{made.cause.replace('_', ' ')}, {made.outcome or 'not measured yet'}"}
        for made in run.restructurings.exclude(after=None).select_related("after")
        if made.after
    ]  # fmt: skip


def sparkline(run: Run, width: int = 120, height: int = 26) -> str:
    """Points of a polyline for the runs list: the best verified figure over candidates (SVG user units)."""
    verified = Report.objects.filter(run=run).verified().in_order().values_list("at_candidate", "geomean")
    best, points = 0.0, []
    for at, geomean in verified:
        best = max(best, geomean or 0.0)
        points.append((at, best))
    if len(points) < 2:
        return ""
    last, top = max(run.reports.judged().count(), points[-1][0]), points[-1][1]
    points.append((last, points[-1][1]))
    return " ".join(f"{x / last * width:.1f},{height - 2 - y / top * (height - 4):.1f}" for x, y in points)
