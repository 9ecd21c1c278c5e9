"""The moves of a C kernel, and a design read into named, typed fields.

The start is the plain kernel: one head after another, scalar, two passes over the sequence, every key converted again
at each use. Some choices are mistakes that a first attempt makes (`tail`, `empty`, too low a `degree`), and some pairs
of choices do not compile (a block that is not whole tiles): the judge refuses them, and one move repairs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.space import Choice, Move

KEYS_OUTSIDE = {"order": ("keys outside",)}
BLOCKS = {"blocking": ("blocks",)}
VECTORS = {"vectors": ("vector extensions",)}

MOVES = (
    Move("order", "loop order of heads and keys", "structure", ("heads outside", "keys outside"), "heads outside"),
    Move("group", "heads that share a pass over the keys", "number", (2, 4, 8, 16), 4, KEYS_OUTSIDE),
    Move("vectors", "arithmetic", "structure", ("scalar", "vector extensions"), "scalar"),
    Move("lanes", "floats in a vector", "number", (4, 8, 16, 32), 8, VECTORS),
    Move("blocking", "what a pass takes at a time", "structure", ("whole sequence", "blocks"), "whole sequence"),
    Move("block", "keys in a block", "number", (4, 8, 16, 32, 64, 128), 16, BLOCKS),
    Move(
        "tail",
        "keys left over after the last whole block",
        "structure",
        ("masked", "padded", "zero rows", "ignored"),
        "masked",
        BLOCKS,
    ),
    Move("softmax", "softmax", "structure", ("two passes", "online"), "two passes", BLOCKS),
    Move("empty", "sequences without keys", "structure", ("handled", "not handled"), "handled"),
    Move("convert", "conversion of keys from bf16", "structure", ("at each use", "once"), "at each use"),
    Move("query", "layout of q", "structure", ("as given", "converted once", "transposed"), "as given"),
    Move(
        "products",
        "products of the logits",
        "structure",
        ("fp32", "bf16 pairs"),
        "fp32",
        {**VECTORS, "query": ("as given",)},
    ),
    Move(
        "head_tile",
        "heads in a register tile of logits",
        "number",
        (1, 2, 4, 8),
        1,
        {**KEYS_OUTSIDE, "query": ("as given", "converted once")},
    ),
    Move("key_tile", "keys in a register tile of logits", "number", (1, 2, 4, 8), 1, BLOCKS),
    Move(
        "reduce",
        "sum over the lanes of a vector",
        "structure",
        ("one by one", "by halves"),
        "one by one",
        {**VECTORS, "query": ("as given", "converted once")},
    ),
    Move("weights", "layout of logits and weights", "structure", ("by head", "by key"), "by head", KEYS_OUTSIDE),
    Move("values", "sums of the value product", "structure", ("in memory", "in registers"), "in memory"),
    Move(
        "value_heads",
        "heads in a register tile of values",
        "number",
        (1, 2, 4, 8),
        1,
        {**KEYS_OUTSIDE, "values": ("in registers",)},
    ),
    Move(
        "value_vectors",
        "vectors of dimensions in a register tile of values",
        "number",
        (1, 2, 4, 8),
        1,
        {"values": ("in registers",)},
    ),
    Move("exp", "power of two", "structure", ("exp2f", "polynomial"), "exp2f"),
    Move("degree", "degree of the polynomial", "number", (1, 3, 5), 5, {"exp": ("polynomial",)}),
    Move("prefetch", "software prefetch", "structure", ("none", "keys ahead"), "none"),
    Move("distance", "keys that a prefetch runs ahead", "number", (1, 4, 16), 4, {"prefetch": ("keys ahead",)}),
    Move("split", "division of a sequence", "structure", ("none", "parts merged at the end"), "none"),
    Move("parts", "parts of a sequence", "number", (2, 8), 2, {"split": ("parts merged at the end",)}),
    Move("unroll", "unrolling of the loop over dimensions", "number", (1, 2, 4), 1),
    Move("optimise", "level of optimisation", "number", ("-O2", "-O3"), "-O3"),
    Move("loops", "unrolling by the compiler", "number", ("as it sees fit", "-funroll-loops"), "as it sees fit"),
    Move("infinities", "infinities and NaN", "number", ("kept", "-ffinite-math-only"), "kept"),
    Move("signs", "signed zeros and traps", "number", ("kept", "-fno-signed-zeros -fno-trapping-math"), "kept"),
    Move(
        "sums",
        "order of sums",
        "number",
        ("kept", "-fassociative-math"),
        "kept",
        {"signs": ("-fno-signed-zeros -fno-trapping-math",)},
    ),
)

FLAGS = ("optimise", "loops", "infinities", "signs", "sums")
"""Moves whose choice, where it begins with a dash, is handed to the compiler. gcc reassociates sums only where signed
zeros and traps do not matter."""


@dataclass(frozen=True)
class Shape:
    """What a design decides about the text, as the writers of the text ask for it."""

    group: int
    vectors: bool
    lanes: int
    blocks: bool
    block: int
    tail: str
    online: bool
    empty: bool
    once: bool
    query: str
    pairs: bool
    head_tile: int
    key_tile: int
    halves: bool
    by_key: bool
    registers: bool
    value_heads: int
    value_vectors: int
    polynomial: bool
    degree: int
    prefetch: bool
    distance: int
    parts: int
    unroll: int
    flags: tuple[str, ...]

    @property
    def transposed(self) -> bool:
        """Do the lanes of a vector of q hold heads?"""
        return self.query == "transposed"

    @property
    def raw_query(self) -> bool:
        """Is q converted at each use?"""
        return self.query == "as given"

    @property
    def whole(self) -> bool:
        """Are the keys of a whole sequence kept converted?"""
        return self.once and not self.blocks

    @property
    def zero_rows(self) -> bool:
        """Is the last block filled up with rows of zeros?"""
        return self.blocks and self.tail in ("padded", "zero rows")

    @property
    def tiled(self) -> bool:
        """Has a tile of logits more than one element?"""
        return self.head_tile > 1 or self.key_tile > 1


def shape(d: Mapping[str, Choice]) -> Shape:
    """Read a canonical design."""
    number = {key: choice for key, choice in d.items() if isinstance(choice, int)}
    vectors = d["vectors"] == "vector extensions"
    return Shape(
        group=number["group"] if d["order"] == "keys outside" else 1,
        vectors=vectors,
        lanes=number["lanes"] if vectors else 1,
        blocks=d["blocking"] == "blocks",
        block=number["block"],
        tail=str(d["tail"]),
        online=d["softmax"] == "online",
        empty=d["empty"] == "handled",
        once=d["convert"] == "once",
        query=str(d["query"]),
        pairs=d["products"] == "bf16 pairs",
        head_tile=number["head_tile"],
        key_tile=number["key_tile"],
        halves=d["reduce"] == "by halves",
        by_key=d["weights"] == "by key",
        registers=d["values"] == "in registers",
        value_heads=number["value_heads"],
        value_vectors=number["value_vectors"],
        polynomial=d["exp"] == "polynomial",
        degree=number["degree"],
        prefetch=d["prefetch"] == "keys ahead",
        distance=number["distance"],
        parts=number["parts"] if d["split"] != "none" else 1,
        unroll=number["unroll"],
        flags=("-march=native", *(flag for key in FLAGS for flag in str(d[key]).split() if flag.startswith("-"))),
    )
