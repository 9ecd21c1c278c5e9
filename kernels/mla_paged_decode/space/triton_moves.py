"""The moves of a Triton kernel, and a design read into named, typed fields.

The start is the plain kernel: a program for each sequence and head goes through the sequence's keys, and multiplies and
adds in fp32. No choice is a mistake. What wants more shared memory than a GPU has (tile, stages, tf32, values read
again) is refused at its first launch, and one move repairs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.mla_paged_decode.workloads import HEADS
from kernels.space import Choice, Move

DOTS: Mapping[str, tuple[Choice, ...]] = {"heads": (8, 16)}
EQUAL, TOKENS, ROOM = "equal parts", "parts of so many tokens", "parts that fill the GPU"
SPLIT = {"split": (EQUAL, TOKENS, ROOM)}
RAGGED = {"split": (TOKENS, ROOM)}
SECOND = {"merge": ("second launch",), **SPLIT}
ONE_STAGE: Mapping[str, tuple[Choice, ...]] = {"stages": (1,), **DOTS}
"""Loads that are under way for a later step (cp.async) lose the hint in the compiler."""
FEW_SEQUENCES = 32
FEW = {"sizes": ("few sequences apart",)}

MOVES = (
    Move("heads", "heads of a program (more than one by tl.dot)", "structure", (1, 8, 16), 1),
    Move("order", "order of the operands", "structure", ("Q K^T", "K Q^T"), "Q K^T", DOTS),
    Move("dot", "element type of the products", "structure", ("tf32", "bfloat16"), "tf32", DOTS),
    Move("query", "the query", "structure", ("kept", "read at each step"), "kept", DOTS),
    Move(
        "values", "values of a step", "structure", ("its keys, transposed", "read again"), "its keys, transposed", DOTS
    ),
    Move("pages", "page ids of a step", "structure", ("read in it", "read a step ahead"), "read in it"),
    Move("tail", "masks for keys beyond the end", "structure", ("in every step", "in a last step"), "in every step"),
    Move("split", "division of a sequence among programs", "structure", ("none", EQUAL, TOKENS, ROOM), "none"),
    Move("plan", "who finds the parts", "structure", ("each program", "plan()"), "each program", RAGGED),
    Move("merge", "who merges the parts", "structure", ("second launch", "last program"), "second launch", SPLIT),
    Move(
        "launch",
        "beginning of the second launch",
        "structure",
        ("after the first", "within the first"),
        "after the first",
        SECOND,
    ),
    Move("sizes", "tile and warps", "structure", ("alike for all", "few sequences apart"), "alike for all"),
    Move("tile", "keys of a step", "number", (16, 32, 64, 128), 16),
    Move("warps", "warps of a program", "number", (2, 4, 8), 4),
    Move("few_tile", f"keys of a step, up to {FEW_SEQUENCES} sequences", "number", (16, 32, 64, 128), 16, FEW),
    Move("few_warps", f"warps of a program, up to {FEW_SEQUENCES} sequences", "number", (2, 4, 8), 4, FEW),
    Move("stages", "steps whose loads are under way", "number", (1, 2, 3, 4), 2, DOTS),
    Move("evict", "keys in the L2 cache", "number", ("as usual", "evicted first"), "as usual", ONE_STAGE),
    Move("parts", "parts of a sequence", "number", (4, 8, 16, 32), 8, {"split": (EQUAL,)}),
    Move("tokens", "tokens of a part", "number", (64, 128, 256, 512), 256, {"split": (TOKENS,)}),
    Move("programs", "programs that fill a multiprocessor", "number", (1, 2, 3, 4), 1, {"split": (ROOM,)}),
    Move("least", "tokens that are worth a part", "number", (32, 64, 128), 64, {"split": (ROOM,)}),
    Move("stored", "element type of stored parts", "number", ("float32", "bfloat16"), "float32", SPLIT),
    Move("at_once", "parts that are merged at once", "number", (1, 4, 8, 16), 4, SPLIT),
    Move("dims", "dimensions that are merged at once", "number", (32, 64, 128, 256), 128, SPLIT),
    Move("merge_warps", "warps of a merging program", "number", (1, 2, 4), 4, SECOND),
)


@dataclass(frozen=True)
class Shape:
    """What a design says, by field; a move that means nothing in it has the value that its absence comes to."""

    heads: int
    keys_first: bool
    bf16: bool
    reread: bool
    again: bool
    ahead: bool
    apart: bool
    split: str
    planned: bool
    second: bool
    dependent: bool
    few: bool
    numbers: Mapping[str, int]
    evict_first: bool
    bf16_parts: bool

    @property
    def dots(self) -> bool:
        """Are products made by tl.dot?"""
        return self.heads > 1

    @property
    def groups(self) -> int:
        """Programs among which a sequence's heads are divided."""
        return HEADS // self.heads

    @property
    def splits(self) -> bool:
        """May a sequence be cut into parts?"""
        return self.split != "none"

    @property
    def ragged(self) -> bool:
        """Have sequences different numbers of parts?"""
        return self.split in (TOKENS, ROOM)

    @property
    def searched(self) -> bool:
        """Does a program find its part by counting?"""
        return self.ragged and not self.planned

    @property
    def by_last(self) -> bool:
        """Does the last program of a sequence merge its parts?"""
        return self.splits and not self.second


def shape(d: Mapping[str, Choice]) -> Shape:
    """Read a canonical design."""
    splits = d["split"] != "none"
    return Shape(
        heads=int(d["heads"]),
        keys_first=d["order"] == "K Q^T",
        bf16=d["dot"] == "bfloat16",
        reread=d["query"] == "read at each step",
        again=d["values"] == "read again",
        ahead=d["pages"] == "read a step ahead",
        apart=d["tail"] == "in a last step",
        split=str(d["split"]),
        planned=d["plan"] == "plan()",
        second=splits and d["merge"] == "second launch",
        dependent=d["launch"] == "within the first",
        few=d["sizes"] == "few sequences apart",
        numbers={key: choice for key, choice in d.items() if isinstance(choice, int)},
        evict_first=d["evict"] == "evicted first",
        bf16_parts=d["stored"] == "bfloat16",
    )
