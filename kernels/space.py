"""The moves from which built-in agents make candidates: which there are, what they exclude, and the text they become.

A `Move` is one decision with a handful of choices, a `Design` picks one choice of each, and a `Space` turns designs
into source files. Nothing here knows a task or a language; `Task.space` says which moves a task has.

    python -m kernels.space TASK LANGUAGE      prints the table of moves
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kernels.task import BadInputError, load_task

Choice = str | int
Kind = Literal["structure", "number"]


@dataclass(frozen=True)
class Move:
    """One decision. `needs` names the settings of earlier moves under which it means anything."""

    key: str
    title: str
    kind: Kind
    choices: tuple[Choice, ...]
    start: Choice
    needs: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)


class Design(Mapping[str, Choice]):
    """A choice for each move, in the order of the space's moves; never changed, and usable as a key.

    `space` is the one in which it is known to be canonical.
    """

    __slots__ = ("_choices", "_hash", "space")

    def __init__(self, choices: Mapping[str, Choice], space: Space | None = None) -> None:
        self._choices = dict(choices)
        self._hash = hash(tuple(self._choices.items()))
        self.space = space

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Design):
            return self._hash == other._hash and self._choices == other._choices
        return super().__eq__(other)

    def __getitem__(self, key: str) -> Choice:
        return self._choices[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices)

    def __len__(self) -> int:
        return len(self._choices)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Design({self._choices})"


Render = Callable[[Design], dict[str, str]]


class Space:
    """All designs that some moves span, and how each is written down."""

    def __init__(self, language: str, moves: Sequence[Move], render: Render) -> None:
        self.language = language
        self.moves = tuple(moves)
        self._by_key = {move.key: move for move in self.moves}
        self._render = render
        _check_moves(self.moves)
        self.start = self._canonical({move.key: move.start for move in self.moves})

    def design(self, choices: Mapping[str, Choice]) -> Design:
        """The design with these choices, the others as at the start, in canonical form; see `check` for errors."""
        self._check_choices(choices)
        return self._canonical({**self.start, **choices})

    def check(self, design: Mapping[str, Choice]) -> None:
        """Refuse, with a `BadInputError` that names key and allowed choices, what is no design of this space."""
        self._check_choices(design)
        if missing := [move.key for move in self.moves if move.key not in design]:
            raise BadInputError(f"no choice for the move {missing[0]!r}: {_allowed(self._by_key[missing[0]])}")

    def canonical(self, design: Mapping[str, Choice]) -> Design:
        """The same program's one design: moves that mean nothing beside the others stand at their start."""
        if isinstance(design, Design) and design.space is self:
            return design
        self.check(design)
        return self._canonical(design)

    def active(self, design: Mapping[str, Choice]) -> tuple[Move, ...]:
        """The moves that mean something in this design."""
        canonical = self.canonical(design)
        return tuple(move for move in self.moves if _is_met(move, canonical))

    def changed(self, design: Mapping[str, Choice], key: str, choice: Choice) -> Design:
        """The canonical design that results from one move."""
        self._check_choices({key: choice})
        return self._canonical({**self.canonical(design), key: choice})

    def neighbours(self, design: Mapping[str, Choice], kind: Kind | None = None) -> tuple[Design, ...]:
        """All designs that are one move away, in the order of moves and choices; of one kind of move if asked."""
        here = self.canonical(design)
        return tuple(
            self._canonical({**here, move.key: choice})
            for move in self.moves
            if kind in (None, move.kind) and _is_met(move, here)
            for choice in move.choices
            if choice != here[move.key]
        )

    def changes(self, a: Mapping[str, Choice], b: Mapping[str, Choice]) -> tuple[str, ...]:
        """What b does otherwise than a, in words; moves that no longer mean anything in b are not counted."""
        a, b = self.canonical(a), self.canonical(b)
        return tuple(
            f"{move.title}: {a[move.key]} -> {b[move.key]}"
            for move in self.moves
            if a[move.key] != b[move.key] and _is_met(move, b)
        )

    def render(self, design: Mapping[str, Choice]) -> dict[str, bytes]:
        """The source files of a design by name. Equal programs have equal text."""
        return {name: text.encode() for name, text in self._render(self.canonical(design)).items()}

    def _canonical(self, choices: Mapping[str, Choice]) -> Design:
        settled: dict[str, Choice] = {}
        for move in self.moves:
            settled[move.key] = choices[move.key] if _is_met(move, settled) else move.start
        return Design(settled, self)

    def _check_choices(self, choices: Mapping[str, Choice]) -> None:
        for key, choice in choices.items():
            if key not in self._by_key:
                raise BadInputError(f"no move {key!r}; there is {', '.join(self._by_key)}")
            if type(choice) not in (str, int) or choice not in self._by_key[key].choices:
                raise BadInputError(f"{key} cannot be {choice!r}: {_allowed(self._by_key[key])}")


def table(space: Space) -> str:
    """The moves as a table in Markdown; the choice of the start is set in bold."""
    lines = ["| move | kind | what it decides | choices | means something with |", "|---|---|---|---|---|"]
    for move in space.moves:
        choices = ", ".join(f"**{c}**" if c == move.start else str(c) for c in move.choices)
        needs = "; ".join(f"{key}: {' or '.join(map(str, allowed))}" for key, allowed in move.needs.items())
        lines.append(f"| `{move.key}` | {move.kind} | {move.title} | {choices} | {needs} |")
    return "\n".join(lines) + "\n"


def _is_met(move: Move, settled: Mapping[str, Choice]) -> bool:
    return not move.needs or all(settled[key] in allowed for key, allowed in move.needs.items())


def _allowed(move: Move) -> str:
    return f"allowed is {', '.join(map(repr, move.choices))}"


def _check_moves(moves: Sequence[Move]) -> None:
    """A space is written by hand: what would make its canonical form ambiguous is a mistake in it."""
    earlier: dict[str, Move] = {}
    for move in moves:
        assert move.key not in earlier, f"two moves {move.key}"
        assert move.start in move.choices, f"{move.key}: {move.start} is no choice"
        assert len(set(move.choices)) == len(move.choices), f"{move.key}: a choice stands there twice"
        for key, allowed in move.needs.items():
            assert key in earlier, f"{move.key} needs {key}, which must stand before it"
            assert set(allowed) <= set(earlier[key].choices), f"{move.key} needs {key} to be what it cannot be"
        earlier[move.key] = move


if __name__ == "__main__":
    sys.stdout.write(table(load_task(sys.argv[1]).space(sys.argv[2])))
