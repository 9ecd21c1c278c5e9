"""JSON from outside: strictly read, its fields asked for by type, and what is wrong named by where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.task import BadInputError

WORDS = {str: "a string", int: "a whole number", dict: "an object", list: "a list", bool: "true or false"}
HALF_A_PAIR = re.compile("[\ud800-\udfff]")
"""Surrogates, which JSON can spell and UTF-8 cannot."""


def read_json(path: Path) -> Any:
    """The JSON value in a file; `BadInputError` names the file."""
    return loads(read_text(path), str(path))


def read_text(path: Path) -> str:
    """A plain file's text; `BadInputError` names the file."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("is not a plain file")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from None


def loads(text: str, where: str) -> Any:
    """The value of a JSON text; `BadInputError` for what is none, NaN among it."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where}: cannot be read as JSON: {error}") from None


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")


class Fields:
    """A JSON object whose fields are asked for by type; `where` names it in errors, which are `BadInputError`."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise BadInputError(f"{where}: must be an object, not {shown(data)}")
        self.data: Mapping[str, Any] = data
        self.where = where

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The field, of this type."""
        value = self.data.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise BadInputError(f"{self.where}.{key}: must be {WORDS[kind]}, not {shown(value)}")
        return value

    def inside(self, key: str) -> Fields:
        """The field, an object."""
        return Fields(self.get(key, dict), f"{self.where}.{key}")

    def each(self, key: str) -> list[Fields]:
        """The field, a list of objects."""
        return [Fields(value, f"{self.where}.{key}[{i}]") for i, value in enumerate(self.get(key, list))]

    def text(self, key: str) -> str:
        """The field, a string that says something and that a file can hold."""
        value = self.get(key, str)
        if not value or HALF_A_PAIR.search(value):
            raise BadInputError(f"{self.where}.{key}: must be text, not {shown(value)}")
        return str(value)

    def one_of(self, key: str, allowed: Sequence[str]) -> str:
        """The field, one of these words."""
        value = self.get(key, str)
        if value not in allowed:
            raise BadInputError(f"{self.where}.{key}: must be one of {', '.join(allowed)}, not {shown(value)}")
        return str(value)

    def number(self, key: str, *, optional: bool = False) -> Any:
        """The field, a positive number; None where it is optional and null."""
        value = self.data.get(key)
        if optional and value is None:
            return None
        return positive(value, f"{self.where}.{key}")

    def numbers(self, key: str) -> list[float]:
        """The field, a list of positive numbers."""
        return [positive(v, f"{self.where}.{key}[{i}]") for i, v in enumerate(self.get(key, list))]


def positive(value: Any, where: str) -> float:
    """The value, if it is a positive number of a size that can be measured."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 1e-9 < value < 1e15:
        raise BadInputError(f"{where}: must be a positive number, not {shown(value)}")
    return float(value)


def shown(value: Any) -> str:
    """A value in an error message: its beginning, if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
