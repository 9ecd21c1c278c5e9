"""A team on paper: roles, phases, sharing; the operations that change it; what makes it valid.

Rows (`Team`, `Role`) are written from such a design and never changed; every change is a new design and so a new team.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

SEES = ("full", "summary", "scores", "none")
MOST_ROLES = 12
EDITABLE = ("title", "charter", "agent", "posture", "tools", "writes")


class InvalidTeamError(ValueError):
    """A team or an operation that will not do; the message says what is wrong with it."""


@dataclass(frozen=True)
class Seat:
    """A role on paper; fields as in the row `Role`."""

    key: str
    title: str
    charter: str
    posture: str
    agent: str = "builtin"
    tools: tuple[str, ...] = ()
    sees: Mapping[str, str] = field(default_factory=lambda: {"*": "summary"})
    share: float = 0.0
    writes: bool = True
    pinned: bool = False


@dataclass(frozen=True)
class TeamDesign:
    """Seats by key, in order of position, and the phases: groups of keys that work side by side."""

    seats: Mapping[str, Seat]
    phases: tuple[tuple[str, ...], ...]
    base: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values, for team.json."""
        return {"roles": [asdict(s) for s in self.seats.values()], "phases": [list(g) for g in self.phases],
                "base": self.base}  # fmt: skip


def apply(team: TeamDesign, operations: Sequence[Mapping[str, Any]]) -> TeamDesign:
    """The team after all operations; `InvalidTeamError` if any is wrong, touches a pinned role or nothing changes."""
    changed = team
    for operation in operations:
        name = operation.get("op") if isinstance(operation, Mapping) else None
        if not isinstance(name, str) or name not in OPERATIONS:
            raise InvalidTeamError(f"no operation {name!r}; there is {', '.join(OPERATIONS)}")
        try:
            changed = OPERATIONS[name](changed, **{k: v for k, v in operation.items() if k != "op"})
        except (TypeError, AttributeError) as error:
            raise InvalidTeamError(f"{name}: {error}") from None
    changed = _tidy(changed, gone=set(team.seats) - set(changed.seats))
    validate(changed)
    if changed == team:
        raise InvalidTeamError("the operations change nothing")
    for key, seat in team.seats.items():
        if seat.pinned and changed.seats.get(key) != seat:
            raise InvalidTeamError(f"role {key} is pinned")
    return changed


def validate(team: TeamDesign) -> None:
    """`InvalidTeamError` naming the first rule that a team breaks."""
    if not 1 <= len(team.seats) <= MOST_ROLES:
        raise InvalidTeamError(f"a team has 1 to {MOST_ROLES} roles, not {len(team.seats)}")
    if not any(seat.writes for seat in team.seats.values()):
        raise InvalidTeamError("a team needs at least one role that writes candidates")
    named = [key for group in team.phases for key in group]
    if sorted(named) != sorted(team.seats):
        raise InvalidTeamError("the phases must name each role exactly once")
    if any(not group for group in team.phases):
        raise InvalidTeamError("a phase names no role")
    if sum(seat.share for seat in team.seats.values()) > 1 + 1e-9 or any(s.share < 0 for s in team.seats.values()):
        raise InvalidTeamError("shares must be 0 or more and add up to 1 at the most")
    for seat in team.seats.values():
        for whom, level in seat.sees.items():
            if level not in SEES or (whom != "*" and whom not in team.seats):
                raise InvalidTeamError(f"role {seat.key} cannot see {level!r} of {whom!r}")


def differences(before: TeamDesign, after: TeamDesign) -> list[str]:
    """What changed, in words."""
    said = [f"adds {after.seats[key].title}" for key in after.seats if key not in before.seats]
    said += [f"removes {before.seats[key].title}" for key in before.seats if key not in after.seats]
    for key in (key for key in after.seats if key in before.seats):
        a, b = before.seats[key], after.seats[key]
        changed = [f.name for f in fields(Seat) if getattr(a, f.name) != getattr(b, f.name)]
        if changed:
            said.append(f"changes {', '.join(changed)} of {b.title}")
    if before.phases != after.phases:
        said.append(f"order: {in_words(before.phases)} becomes {in_words(after.phases)}")
    if before.base != after.base:
        said.append(f"starts from candidate {after.base}")
    return said


def in_words(phases: Iterable[Sequence[str]]) -> str:
    """Phases as `a + b, then c`."""
    return ", then ".join(" + ".join(group) for group in phases)


def _tidy(team: TeamDesign, gone: set[str]) -> TeamDesign:
    """Drop what sharing says of roles that are gone, and groups that became empty."""
    seats = {
        key: replace(seat, sees={whom: level for whom, level in seat.sees.items() if whom not in gone})
        for key, seat in team.seats.items()
    }
    return replace(team, seats=seats, phases=tuple(group for group in team.phases if group))


def _seat(team: TeamDesign, key: str) -> Seat:
    if key not in team.seats:
        raise InvalidTeamError(f"no role {key!r}; there is {', '.join(team.seats)}")
    return team.seats[key]


def _phase_of(team: TeamDesign, key: str) -> int:
    for i, group in enumerate(team.phases):
        if key in group:
            return i
    raise InvalidTeamError(f"role {key} is in no phase")


def _with(team: TeamDesign, seat: Seat) -> TeamDesign:
    return replace(team, seats={**team.seats, seat.key: seat})


def add_role(team: TeamDesign, role: Mapping[str, Any], phase: int | None = None) -> TeamDesign:
    """Seat a new role, in a group of its own at the end or beside the roles of `phase`."""
    seat = Seat(**{**copy.deepcopy(dict(role)), "tools": tuple(role.get("tools", ()))})
    if not isinstance(seat.key, str) or not seat.key or seat.key in team.seats:
        raise InvalidTeamError(f"role {seat.key!r} is there already, or is no key")
    groups = [list(group) for group in team.phases]
    if phase is None:
        groups.append([seat.key])
    elif 0 <= phase < len(groups):
        groups[phase].append(seat.key)
    else:
        raise InvalidTeamError(f"no phase {phase}; there are {len(groups)}")
    return replace(_with(team, seat), phases=tuple(tuple(group) for group in groups))


def remove_role(team: TeamDesign, key: str) -> TeamDesign:
    """Take a role out of seats and phases."""
    _seat(team, key)
    seats = {k: s for k, s in team.seats.items() if k != key}
    return replace(team, seats=seats, phases=tuple(tuple(k for k in group if k != key) for group in team.phases))


def edit_role(team: TeamDesign, key: str, **changes: Any) -> TeamDesign:
    """Change what a role is told and may do."""
    if wrong := [name for name in changes if name not in EDITABLE]:
        raise InvalidTeamError(f"edit_role cannot change {', '.join(wrong)}; it can change {', '.join(EDITABLE)}")
    if "tools" in changes:
        changes["tools"] = tuple(changes["tools"])
    return _with(team, replace(_seat(team, key), **changes))


def split_role(team: TeamDesign, key: str, into: Sequence[Mapping[str, Any]]) -> TeamDesign:
    """Put several roles in the place of one."""
    seat = _seat(team, key)
    phase = _phase_of(team, key)
    for part in into:
        team = add_role(team, {**_as_role(seat), "share": seat.share / len(into), "pinned": False, **part}, phase)
    return remove_role(team, key)


def merge_roles(team: TeamDesign, keys: Sequence[str], into: Mapping[str, Any]) -> TeamDesign:
    """Put one role in the place of several, where the first of them stood."""
    seats = [_seat(team, key) for key in keys]
    if len(seats) < 2:
        raise InvalidTeamError("merge_roles needs at least two roles")
    phase = _phase_of(team, keys[0])
    team = add_role(team, {**_as_role(seats[0]), "share": sum(s.share for s in seats), "pinned": False, **into}, phase)
    for key in keys:
        team = remove_role(team, key)
    return team


def _as_role(seat: Seat) -> dict[str, Any]:
    return {f.name: getattr(seat, f.name) for f in fields(Seat)}


def set_phases(team: TeamDesign, phases: Sequence[Sequence[str]]) -> TeamDesign:
    """Change the order of collaboration."""
    return replace(team, phases=tuple(tuple(group) for group in phases))


def set_sees(team: TeamDesign, key: str, sees: Mapping[str, str]) -> TeamDesign:
    """Change what a role sees of the others' work."""
    return _with(team, replace(_seat(team, key), sees=dict(sees)))


def set_base(team: TeamDesign, candidate: int | None) -> TeamDesign:
    """Let the team start from another candidate (its number in the run)."""
    return replace(team, base=candidate)


def set_shares(team: TeamDesign, shares: Mapping[str, float]) -> TeamDesign:
    """Change the roles' shares of the budget."""
    for key, share in shares.items():
        team = _with(team, replace(_seat(team, key), share=float(share)))
    return team


OPERATIONS = {
    function.__name__: function
    for function in (
        add_role, remove_role, edit_role, split_role, merge_roles, set_phases, set_sees, set_base, set_shares,
    )
}  # fmt: skip
