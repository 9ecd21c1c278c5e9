"""Agents by kind: who writes candidates in a turn."""

from __future__ import annotations

from teams.agents import builtin
from teams.agents.brief import Agent

AGENTS: dict[str, Agent] = {"builtin": builtin.write}
