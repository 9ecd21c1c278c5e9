"""The teams that strategies start with, and the roles that a supervisor may seat later."""

from __future__ import annotations

from dataclasses import replace

from teams.design import Seat, TeamDesign

ARCHITECT = Seat(
    "architect",
    "Architect",
    "Change the structure of the best program: loop order, blocking, layout, arithmetic. Leave its numbers to others.",
    "engineer",
)
TUNER = Seat(
    "tuner",
    "Tuner",
    "Find the best numbers near the best program: sizes of tiles and blocks, unrolling, flags of the compiler.",
    "tuner",
)
DEBUGGER = Seat(
    "debugger",
    "Debugger",
    "Make promising programs that failed right again, one change at a time; try nothing that a record says failed.",
    "debugger",
    sees={"*": "full"},
)
ANALYST = Seat(
    "analyst",
    "Analyst",
    "Read the rows: find the batch size that gains least and make the changes that help there.",
    "analyst",
    sees={"*": "full"},
)
SCOUT = Seat(
    "scout",
    "Scout",
    "Start somewhere new: a program unlike the best one, so that the team is not caught in one place.",
    "scout",
    sees={"*": "full"},
)
GENERALIST = Seat("generalist", "Generalist", "Make the program fast, by any change.", "generalist")

RANDOM = Seat("drawer", "Drawer", "Control: draw any program, whatever is known.", "random")
CLIMBER = Seat("climber", "Climber", "Control: make one change to the best program, whatever is known.", "climber")

ROLES = {seat.key: seat for seat in (ARCHITECT, TUNER, DEBUGGER, ANALYST, SCOUT)}
"""Those that a supervisor may seat."""

STRATEGIES = {
    "evolving": (("architect",), ("tuner",)),
    "fixed": (("architect",), ("tuner",), ("debugger",), ("analyst",)),
    "single": (("generalist",),),
    "random": (("drawer",),),
    "climbing": (("climber",),),
    "shuffled": (("architect",), ("tuner",)),
}
_SEATS = {**ROLES, **{seat.key: seat for seat in (GENERALIST, RANDOM, CLIMBER)}}


def first_team(strategy: str, agent: str) -> TeamDesign:
    """The team that a run of this strategy starts with, its agents of one kind."""
    phases = STRATEGIES[strategy]
    keys = [key for group in phases for key in group]
    share = round(1 / len(keys), 4)
    return TeamDesign({key: replace(_SEATS[key], agent=agent, share=share) for key in keys}, phases)
