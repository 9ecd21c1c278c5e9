"""The supervisor's settings: defaults here, what a run changes in `Run.settings`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernels.task import BadInputError

if TYPE_CHECKING:
    from teams.models import Run


@dataclass(frozen=True)
class Thresholds:
    """When a signal fires, and how long a team is left in peace. Counts are of judged candidates."""

    no_gain: int = 8
    """Candidates without a verified gain."""
    window: int = 6
    """Candidates over which gains, failures and likeness are looked at."""
    falling: float = 0.25
    """Gain of the last window, as a share of the run's mean gain for as many candidates, below which it has fallen."""
    spend: float = 0.25
    """Share of the budget spent since the last verified gain."""
    same_failure: int = 3
    """The same failure in a row of failures."""
    alike: int = 4
    """Candidates of a window that differ from another of it by one number and run within `gain` of it."""
    retreat: int = 2
    """Wrong results, and then as many easier designs without a gain."""
    failing: float = 0.5
    """Share of a window that failed, from which a team without a debugger misses one."""
    lagging: float = 0.8
    """A batch size's mean over the best batch size's, below which a team without an analyst misses one."""
    worse: float = 0.03
    """Loss of a batch size, from one verified best to the next."""
    near_floor: float = 1.3
    """Times the floor, from which the work is at its end."""
    at_floor: float = 1.05
    """Times the floor, from which the run is done."""
    gain: float = 0.01
    """What counts as a gain: more than noise."""
    minimum_window: int = 6
    """Candidates that a new team gets before it may be changed again."""
    cooldown: int = 12
    """Candidates for which a signal that led to a new team is not heard again."""
    expected_gain: float = 0.02
    """What a new team is expected to add within `minimum_window`."""
    shuffle: float = 0.5
    """Strategy `shuffled` alone: chance of another team between two turns, once the present one has had its window."""
    turn: int = 3
    """Candidates that a role may write in a turn."""
    verify_every: int = 4
    """Candidates between two verifications."""
    verify_from: float = 0.5
    """Claims below this many times the baseline wait for the end of the run: their verification takes as many times
    longer as they are slower."""
    stop_below: float = 0.6
    """Share of the best claim below which a candidate is timed no further."""


def read(changes: Mapping[str, Any]) -> Thresholds:
    """The defaults with these changes; `BadInputError` names a setting that is unknown or no sensible number."""
    defaults = asdict(Thresholds())
    for name, value in changes.items():
        if name not in defaults:
            raise BadInputError(f"no setting {name!r}; there is {', '.join(defaults)}")
        whole = isinstance(defaults[name], int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < 1e6:
            kind = "a whole number" if whole else "a number"
            raise BadInputError(f"{name}: must be {kind} above 0, not {value!r}")
    return Thresholds(**changes)


def parse(texts: Mapping[str, str]) -> dict[str, int | float]:
    """Settings as they stand on a command line or in a form, as numbers; checked by `read`."""
    kinds: dict[str, type[int] | type[float]] = {name: type(value) for name, value in asdict(Thresholds()).items()}
    changes: dict[str, int | float] = {}
    for name, text in texts.items():
        try:
            changes[name] = kinds.get(name, float)(text)
        except ValueError:
            raise BadInputError(f"{name}: {text!r} is not a number") from None
    read(changes)
    return changes


def described() -> list[tuple[str, int | float, str]]:
    """Name, default and meaning of each setting, from the source above."""
    text = inspect.getsource(Thresholds)
    words = dict(re.findall(r'^    (\w+): \w+ = [\d.]+\n    """(.*?)"""', text, re.MULTILINE | re.DOTALL))
    return [(name, default, " ".join(words[name].split())) for name, default in asdict(Thresholds()).items()]


def thresholds_of(run: Run) -> Thresholds:
    """The settings of a run."""
    return read(run.settings)
