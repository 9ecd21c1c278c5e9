"""Budget: what a run may spend, reserved before it is spent.

Two units: `candidates` (verdicts that count) and `seconds` (of the judge's work). A run may be granted either or both;
a unit that was never granted is without limit. What a verification may need stays protected from new candidates.
"""

from __future__ import annotations

from django.db.models import Sum

from teams.models.run import Run, book

CANDIDATES, SECONDS = "candidates", "seconds"
UNITS = (CANDIDATES, SECONDS)
VERDICT_SECONDS, VERIFICATION_SECONDS = 30.0, 90.0


def limits(run: Run) -> tuple[str, ...]:
    """The units that this run was granted."""
    granted = set(run.ledger.filter(kind="grant").values_list("unit", flat=True))
    return tuple(unit for unit in UNITS if unit in granted)


def allows_candidate(run: Run) -> bool:
    """May another candidate be judged, with what a verification needs left over?"""
    needs = {CANDIDATES: 1.0, SECONDS: VERDICT_SECONDS + VERIFICATION_SECONDS}
    return all(run.ledger.available(unit) >= needs[unit] for unit in limits(run))


def reserve(run: Run, report_id: int, *, is_verification: bool) -> None:
    """Set aside what a verdict may cost; a verification costs no candidate, and takes of the seconds what is there."""
    note = f"report {report_id}"
    for unit in limits(run):
        if unit == SECONDS:
            wanted = VERIFICATION_SECONDS if is_verification else VERDICT_SECONDS
            if (amount := min(wanted, run.ledger.available(SECONDS))) > 0:
                book(run, "reserve", SECONDS, amount, note)
        elif not is_verification:
            book(run, "reserve", CANDIDATES, 1, note)


def settle(run: Run, report_id: int, seconds: float, *, charged: bool) -> None:
    """Spend what a verdict has cost of what was reserved for it, give back the rest; all, if it is not charged."""
    note = f"report {report_id}"
    for unit in limits(run):
        reserved = run.ledger.filter(kind="reserve", unit=unit, note=note)
        amount = float(reserved.aggregate(sum=Sum("amount"))["sum"] or 0)
        cost = (amount if unit == CANDIDATES else seconds) if charged else 0.0
        if (more := min(cost - amount, run.ledger.available(unit))) > 0:
            book(run, "reserve", unit, more, note)
            amount += more
        if (spent := min(cost, amount)) > 0:
            book(run, "spend", unit, spent, note)
        if amount - spent > 1e-9:
            book(run, "refund", unit, amount - spent, note)
