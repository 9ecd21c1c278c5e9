"""Where data is kept."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def home() -> Path:
    """$REGROUP_HOME, or `var` beside the packages."""
    return Path(os.environ.get("REGROUP_HOME") or ROOT / "var")
