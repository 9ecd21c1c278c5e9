"""How a Triton kernel says the small things: a call that is too long for a line, a vector spread over a tile."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.mla_paged_decode.space.triton_moves import Shape

PAD = " " * 4
WIDTH = 120

Lines = list[str]


def indented(lines: Lines) -> Lines:
    """One level deeper."""
    return [PAD + line if line else line for line in lines]


def call(head: str, arguments: Sequence[str], tail: str = ")", depth: int = 1) -> Lines:
    """`head`, arguments and `tail` as ruff lays them out: on one line, on one of their own, or on one each."""
    room = WIDTH - len(PAD) * depth
    if len(line := head + ", ".join(arguments) + tail) <= room:
        return [line]
    if len(inner := PAD + ", ".join(arguments)) <= room:
        return [head, inner, tail]
    return [head, *(f"{PAD}{argument}," for argument in arguments), tail]


def function(name: str, parameters: Sequence[str], note: str, body: Lines, *, jit: str = "@triton.jit") -> str:
    """A function at file scope."""
    head = call(f"def {name}(", parameters, "):", depth=0)
    lines = [jit] * bool(jit) + head + indented([f'"""{note}"""'] * bool(note) + body)
    return "\n".join(lines) + "\n"


def by_head(s: Shape, vector: str) -> str:
    """A vector of heads beside a tile of logits or of outputs."""
    if not s.dots:
        return vector
    return f"{vector}[None, :]" if s.keys_first else f"{vector}[:, None]"


def by_other(s: Shape, vector: str) -> str:
    """A vector of keys beside a tile of logits, or one of dimensions beside a tile of queries or outputs."""
    if not s.dots:
        return vector
    return f"{vector}[:, None]" if s.keys_first else f"{vector}[None, :]"


def axis(s: Shape) -> int:
    """The axis of a tile of logits along which its keys lie."""
    return 1 if s.dots and not s.keys_first else 0


def tile_shape(s: Shape, other: str) -> str:
    """Shape of a tile of logits (`other` is TILE) or outputs (512)."""
    if not s.dots:
        return f"({other},)"
    return f"({other}, {s.heads})" if s.keys_first else f"({s.heads}, {other})"


def heads(s: Shape) -> str:
    """The heads of a program: a number, or a vector."""
    if s.groups == 1:
        return f"tl.arange(0, {s.heads})"
    return f"head + tl.arange(0, {s.heads})" if s.dots else "head"
