"""The moves that built-in agents make at this task, and the source text that each design becomes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from kernels.mla_paged_decode.space import c_kernel, c_moves, pytorch, triton_kernel, triton_moves
from kernels.space import Space
from kernels.task import BadInputError

SPACES: dict[str, Callable[[], Space]] = {
    "c": lambda: Space("c", c_moves.MOVES, c_kernel.render),
    "pytorch": lambda: Space("pytorch", pytorch.MOVES, pytorch.render),
    "triton": lambda: Space("triton", triton_moves.MOVES, triton_kernel.render),
}


@cache
def space(language: str) -> Space:
    """The space of one language; `BadInputError` names those there are."""
    if language not in SPACES:
        raise BadInputError(f"no space of moves for the language {language!r}; there is {', '.join(SPACES)}")
    return SPACES[language]()
