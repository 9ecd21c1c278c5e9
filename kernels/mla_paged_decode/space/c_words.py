"""How a shape says the small things: a load, a loop, the row of a key, the place of a weight."""

from __future__ import annotations

import re

from kernels.mla_paged_decode.space.c_moves import Shape

PAD = " " * 4


def nest(depth: int, loops: list[str], body: list[str]) -> list[str]:
    """Lines of nested loops without braces around one statement, or with them around several."""
    lines = [PAD * (depth + i) + loop for i, loop in enumerate(loops)]
    inner = PAD * (depth + len(loops))
    if len(body) > 1 and loops:
        lines[-1] += " {"
        return [*lines, *(inner + line for line in body), PAD * (depth + len(loops) - 1) + "}"]
    return [*lines, *(inner + line for line in body)]


def count(name: str, end: str, step: str = "") -> str:
    """`for (int h = 0; h < GROUP; h++)`."""
    return f"for (int {name} = 0; {name} < {end}; {name}{f' += {step}' if step else '++'})"


def dims(s: Shape, end: str, step: str = "LANES") -> str:
    """The loop over dimensions, a vector or a float at a time."""
    return count("d", end, step if s.vectors else "")


def kind(s: Shape) -> str:
    """The type that sums are kept in."""
    return "vec" if s.vectors else "float"


def floats(s: Shape, pointer: str, at: str) -> str:
    """Read fp32."""
    return f"load({plus(pointer, at)})" if s.vectors else element(pointer, at)


def bf16(s: Shape, pointer: str, at: str) -> str:
    """Read bf16 and convert."""
    return f"widen({plus(pointer, at)})" if s.vectors else f"from_bf16({element(pointer, at)})"


def put(s: Shape, pointer: str, at: str, value: str) -> str:
    """Write fp32."""
    return f"store({plus(pointer, at)}, {value});" if s.vectors else f"{element(pointer, at)} = {value};"


def increase(s: Shape, pointer: str, at: str, value: str) -> str:
    """Add to fp32 in memory."""
    if s.vectors:
        return put(s, pointer, at, f"{floats(s, pointer, at)} + {value}")
    return f"{element(pointer, at)} += {value};"


def plus(pointer: str, at: str) -> str:
    """`p + at`."""
    return pointer if at == "0" else f"{pointer} + {at}"


def element(pointer: str, at: str) -> str:
    """`p[at]`, and `p[n + at]` where the pointer is `p + n`."""
    sum_of = re.fullmatch(r"(\S+?(?:\[[^]]*\])?) \+ ([^][]+)", pointer)
    return f"{sum_of[1]}[{plus(sum_of[2], at)}]" if sum_of else f"{pointer}[{at}]"


def product(a: str, b: str) -> str:
    """`a * b`, with a in parentheses where it is a sum."""
    return f"({a}) * {b}" if " " in a else f"{a} * {b}"


def weight(s: Shape, h: str, t: str) -> str:
    """The place of the weight of head h and key t."""
    return f"w[{product(t, 'GROUP')} + {h}]" if s.by_key else f"w[{product(h, room(s))} + {t}]"


def room(s: Shape) -> str:
    """Weights that one head has room for."""
    return "BLOCK" if s.online else "s->room"


def key(s: Shape, t: str) -> str:
    """Index in the sequence of key t of the block."""
    return f"first + {t}" if s.blocks else t


def value_row(s: Shape, t: str) -> str:
    """Pointer to the 512 dimensions of key t of the block that serve as its value."""
    if not s.once:
        return f"ckv_row(s, {key(s, t)})"
    return f"keys[{t}]" if s.blocks else f"s->keys + (int64_t){t} * {row_size(s)}"


def row_size(s: Shape) -> str:
    """Floats of a converted key: products in bf16 pairs want only its value converted."""
    return "CKV" if s.pairs else "DIM"


def row_type(s: Shape) -> str:
    """The type of what `value_row` points at."""
    return "float" if s.once else "uint16_t"


def value(s: Shape, pointer: str, at: str) -> str:
    """Read the value of a key."""
    return floats(s, pointer, at) if s.once else bf16(s, pointer, at)


def power(s: Shape) -> str:
    """The function that raises 2 to a power."""
    return "fast_exp2" if s.polynomial else "exp2f"


def block_parameters(s: Shape, here: bool) -> str:
    """`, int first, int here`, as far as there are blocks and the callee asks how many keys are real."""
    return (", int first" if s.blocks else "") + (", int here" if here and s.blocks else "")


def block_arguments(s: Shape, here: bool) -> str:
    """What `block_parameters` are given."""
    return block_parameters(s, here).replace("int ", "")


def knows_here(s: Shape) -> bool:
    """Do the loops over a block's keys end at the last real key?"""
    return s.blocks and s.tail == "masked"


def end(s: Shape) -> str:
    """Where the loops over a block's keys end."""
    if not s.blocks:
        return "s->count"
    return "here" if s.tail == "masked" else "BLOCK"
