"""States as choices, with every allowed transition in one place, and the one way to make a transition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db import models


class TransitionError(ValueError):
    """A state was to change in a way that its table does not allow."""


class Stateful(models.Model):
    """A row with a `state`; `TRANSITIONS` names for each state those that may follow."""

    TRANSITIONS: ClassVar[Mapping[str, frozenset[str]]] = {}
    state: Any

    class Meta:
        abstract = True

    def move(self, state: str, **changes: Any) -> bool:
        """Go to `state` and set `changes`, if the row is still in the state that this object has; True if it was.

        A claim is such a conditional update: of two who try, one gets True. `TransitionError` for a wrong transition.
        """
        if state not in self.TRANSITIONS[self.state]:
            raise TransitionError(f"{type(self).__name__} {self.pk} cannot go from {self.state} to {state}")
        mine = type(self)._default_manager.filter(pk=self.pk)
        changed = mine.filter(state=self.state).update(state=state, **changes)  # type: ignore[misc]
        if changed:
            self.state = state
            for name, value in changes.items():
                setattr(self, name, value)
        return changed == 1


def table(**rows: str) -> Mapping[str, frozenset[str]]:
    """A transition table from `state="next other"` words."""
    return {state: frozenset(following.split()) for state, following in rows.items()}
