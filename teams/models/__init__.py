"""What is kept: runs, teams, work, memory. Rows are the truth; pages and files are drawn from them."""

from teams.models.imported import Import
from teams.models.login import LoginLink
from teams.models.memory import Record
from teams.models.run import Command, Event, LedgerEntry, Run
from teams.models.team import Restructuring, Role, Signal, Team
from teams.models.work import Candidate, Report, Turn, WorkloadResult

__all__ = [
    "Candidate",
    "Command",
    "Event",
    "Import",
    "LedgerEntry",
    "LoginLink",
    "Record",
    "Report",
    "Restructuring",
    "Role",
    "Run",
    "Signal",
    "Team",
    "Turn",
    "WorkloadResult",
]
