"""The logits of a C kernel: a register tile of heads and keys, and the loops that lay it over a block."""

from __future__ import annotations

from kernels.mla_paged_decode.space import c_words as say
from kernels.mla_paged_decode.space.c_moves import Shape
from kernels.mla_paged_decode.space.c_parts import Lines, function


def logits(s: Shape) -> str:
    """All functions that make the logits of a block, or of a whole sequence."""
    tiles = [_tile(s, keys=s.key_tile)]
    if s.key_tile > 1 and say.knows_here(s):
        tiles.append(_tile(s, keys=1))
    return "\n".join([*tiles, _over_keys(s)])


def _over_keys(s: Shape) -> str:
    here = say.knows_here(s)
    head = f"static void logits(const sequence *s{say.block_parameters(s, here)}, float *w)"
    first = say.block_arguments(s, here=False)
    tile, one = f"logits_of_tile(s{first}, t, w);", f"logits_of_key(s{first}, t, w);"
    if s.key_tile == 1:
        body = say.nest(1, [say.count("t", say.end(s))], [one])
    elif not here:
        body = say.nest(1, [say.count("t", "BLOCK", "KEY_TILE")], [tile])
    else:
        body = [
            "    int t = 0;",
            *say.nest(1, ["for (; t + KEY_TILE <= here; t += KEY_TILE)"], [tile]),
            *say.nest(1, ["for (; t < here; t++)"], [one]),
        ]
    return function(head, body)


def _tile(s: Shape, keys: int) -> str:
    """One function: the logits of `keys` keys and all heads of the group."""
    name = "logits_of_tile" if keys > 1 else "logits_of_key"
    head = f"static inline void {name}(const sequence *s{say.block_parameters(s, here=False)}, int t, float *w)"
    body = _rows(s, keys) + (_heads_in_lanes(s, keys) if s.transposed else _dims_in_lanes(s, keys))
    return function(head, body)


def _segments(s: Shape) -> list[tuple[str, str, str, str]]:
    """The stretches of dimensions of a product: how many, the pointer to their keys, what it points at, and their place
    among the dimensions of a converted query."""
    raw = s.pairs or not s.once
    if not raw and not s.raw_query:
        return [("DIM", "row", "{row}", "0")]
    if raw:
        return [("CKV", "nope", "ckv_row(s, {key})", "0"), ("KPE", "pe", "kpe_row(s, {key})", "CKV")]
    return [("CKV", "nope", "{row}", "0"), ("KPE", "pe", "{row} + CKV", "CKV")]


def _rows(s: Shape, keys: int) -> Lines:
    many = keys > 1
    kind = "uint16_t" if s.pairs or not s.once else "float"
    t = "t + j" if many else "t"
    row = (f"keys[{t}]" if s.blocks else say.value_row(s, t)) if s.once else ""
    found = {name: where.format(row=row, key=say.key(s, t)) for _, name, where, _ in _segments(s)}
    ahead = [f"prefetch(s, {say.key(s, t)} + AHEAD);"] if s.prefetch and not s.once else []
    if not many:
        return ["    " + line for line in [*ahead, *(f"const {kind} *{n} = {w};" for n, w in found.items())]]
    names = ", ".join(f"*{name}[KEY_TILE]" for name in found)
    fill = [*ahead, *(f"{name}[j] = {where};" for name, where in found.items())]
    return [f"    const {kind} {names};", *say.nest(1, [say.count("j", "KEY_TILE")], fill)]


def _unrolled(s: Shape, loops: Lines) -> Lines:
    return [f"#pragma GCC unroll {s.unroll}", *loops] if s.unroll > 1 else loops


def _dims_in_lanes(s: Shape, keys: int) -> Lines:
    heads, many = s.head_tile > 1, keys > 1
    loops = [say.count("i", "HEAD_TILE")] * heads + [say.count("j", "KEY_TILE")] * many
    tile = "tile" + "[i]" * heads + "[j]" * many if heads or many else "sum"
    sizes = "[HEAD_TILE]" * heads + "[KEY_TILE]" * many
    h, t = "h + i" if heads else "h", "t + j" if many else "t"
    zero = "{0}" if s.vectors or sizes else "0"
    body = [f"{say.kind(s)} {tile.split('[')[0]}{sizes} = {zero};"]
    for size, name, _, place in _segments(s):
        k = f"{name}[j]" if many else name
        loop = say.dims(s, size, "2 * LANES" if s.pairs else "LANES")
        body += _unrolled(s, say.nest(0, [loop, *loops], [_product(s, tile, _query(s, h, name, place), k)]))
    result = f"add_lanes({tile})" if s.vectors else tile
    scale = "s->scale * " if s.raw_query else ""
    body += say.nest(0, loops, [f"{say.weight(s, h, t)} = {scale}{result};"])
    return say.nest(1, [say.count("h", "GROUP", "HEAD_TILE" * heads)], body)


def _query(s: Shape, h: str, name: str, place: str) -> str:
    if not s.raw_query:
        return say.plus(f"queries[{h}]", place)
    size = "CKV" if name == "nope" else "KPE"
    return f"s->q_{name} + {say.product(h, size)}"


def _product(s: Shape, tile: str, q: str, k: str) -> str:
    if s.pairs:
        return f"{tile} = add_pairs({tile}, {q} + d, {k} + d);"
    left = say.bf16(s, q, "d") if s.raw_query else say.floats(s, q, "d")
    right = say.floats(s, k, "d") if s.once else say.bf16(s, k, "d")
    return f"{tile} += {left} * {right};"


def _heads_in_lanes(s: Shape, keys: int) -> Lines:
    many = keys > 1
    t, j = ("t + j", "[j]") if many else ("t", "")
    per_key = [say.count("j", "KEY_TILE")] * many
    heads = say.count("i", "GROUP / LANES") if s.vectors else say.count("i", "GROUP")
    tile = f"tile{j}[i]"
    body = [f"    {say.kind(s)} tile{'[KEY_TILE]' * many}[GROUP{' / LANES' * s.vectors}] = {{0}};"]
    for size, name, _, place in _segments(s):
        element = f"{name}{j}[d]" if s.once else f"from_bf16({name}{j}[d])"
        d = "d" if place == "0" else f"{place} + d"
        q = say.floats(s, f"queries[{d}]", "i * LANES" if s.vectors else "i")
        body += _unrolled(s, say.nest(1, [say.count("d", size), *per_key, heads], [f"{tile} += {q} * {element};"]))
    if not s.vectors:
        return body + say.nest(1, [*per_key, heads], [f"{say.weight(s, 'i', t)} = {tile};"])
    if s.by_key:
        place = f"w + {say.product(t, 'GROUP')} + i * LANES"
        return body + say.nest(1, [*per_key, heads], [f"store({place}, {tile});"])
    lanes = say.count("l", "LANES")
    return body + say.nest(1, [*per_key, heads, lanes], [f"{say.weight(s, 'i * LANES + l', t)} = {tile}[l];"])
