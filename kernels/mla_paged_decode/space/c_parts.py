"""The parts of a C kernel that compute: rows, logits, softmax and value product, each as one function's text."""

from __future__ import annotations

from kernels.mla_paged_decode.space import c_words as say
from kernels.mla_paged_decode.space.c_moves import Shape

Lines = list[str]
LINE_BF16 = 32
"""Elements of bf16 in a line of cache (64 bytes)."""


def function(head: str, body: Lines, note: str = "") -> str:
    """A function at file scope."""
    return "\n".join([head + (f" /* {note} */" if note else ""), "{", *body, "}"]) + "\n"


def rows(s: Shape) -> str:
    """How the bf16 row of a key is found, where kernels read it as it is."""
    if s.once and not s.pairs:
        return ""
    parts = []
    if s.zero_rows:
        parts.append("static const uint16_t zeros[CKV];\n")
    for name, size in (("ckv", "CKV"), ("kpe", "KPE")):
        row = f"s->{name} + (int64_t)s->pages[t] * {size}"
        body = f"    return {f't < s->count ? {row} : zeros' if s.zero_rows else row};"
        note = "zeros beyond the end" if s.zero_rows else ""
        parts.append(function(f"static inline const uint16_t *{name}_row(const sequence *s, int t)", [body], note))
    return "\n".join(parts)


def prefetch(s: Shape) -> str:
    """A function that asks for the row of a key before it is needed."""
    if not s.prefetch:
        return ""
    body = [
        "    if (t >= s->count)",
        "        return;",
        "    int64_t page = s->pages[t];",
        f"    for (int d = 0; d < CKV; d += {LINE_BF16})",
        "        __builtin_prefetch(s->ckv + page * CKV + d);",
        f"    for (int d = 0; d < KPE; d += {LINE_BF16})",
        "        __builtin_prefetch(s->kpe + page * KPE + d);",
    ]
    return function("static inline void prefetch(const sequence *s, int t)", body, "every line of key t")


def convert(s: Shape) -> str:
    """The conversion of a row, where rows are kept converted."""
    if not s.once and s.query != "converted once":
        return ""
    body = say.nest(1, [say.dims(s, "dims")], [say.put(s, "row", "d", f"{say.bf16(s, 'source', 'd')} * scale")])
    return function("static inline void convert(float *row, const uint16_t *source, int dims, float scale)", body)


def load_keys(s: Shape) -> str:
    """The conversion of a block of keys, or of all keys of a sequence."""
    if not s.once:
        return ""
    row = say.value_row(s, "t") if s.blocks else f"keys + (int64_t)t * {say.row_size(s)}"
    loop = [f"prefetch(s, {say.key(s, 't')} + AHEAD);"] if s.prefetch else []
    if s.pairs:
        loop.append(f"convert({row}, ckv_row(s, {say.key(s, 't')}), CKV, 1);")
    else:
        loop += [
            f"int64_t page = s->pages[{say.key(s, 't')}];",
            f"convert({row}, s->ckv + page * CKV, CKV, 1);",
            f"convert({row} + CKV, s->kpe + page * KPE, KPE, 1);",
        ]
    if s.whole:
        body = [
            f"    float *keys = aligned_alloc(64, sizeof(float) * {say.row_size(s)} * s->count);",
            *say.nest(1, [say.count("t", "s->count")], loop),
            "    return keys;",
        ]
        return function("static float *load_sequence(const sequence *s)", body)
    here = s.tail != "ignored"
    body = say.nest(1, [say.count("t", "here" if here else "BLOCK")], loop)
    if s.zero_rows:
        body.append("    memset(keys[here], 0, sizeof keys[0] * (BLOCK - here));")
    return function(f"static void load_block(const sequence *s{say.block_parameters(s, here)})", body)


def load_queries(s: Shape) -> str:
    """The conversion of a group's queries, scaled."""
    if s.raw_query:
        return ""
    if s.transposed:
        loops = say.nest(
            1,
            [say.count("h", "GROUP"), say.count("d", "CKV")],
            ["queries[d][h] = from_bf16(s->q_nope[h * CKV + d]) * s->scale;"],
        ) + say.nest(
            1,
            [say.count("h", "GROUP"), say.count("d", "KPE")],
            ["queries[CKV + d][h] = from_bf16(s->q_pe[h * KPE + d]) * s->scale;"],
        )
    else:
        loops = say.nest(
            1,
            [say.count("h", "GROUP")],
            [
                "convert(queries[h], s->q_nope + h * CKV, CKV, s->scale);",
                "convert(queries[h] + CKV, s->q_pe + h * KPE, KPE, s->scale);",
            ],
        )
    return function("static void load_queries(const sequence *s)", loops)


def softmax(s: Shape) -> str:
    """Logits become weights, and the sums what they are relative to."""
    if s.online:
        real, last = ("BLOCK", "BLOCK") if s.tail in ("zero rows", "ignored") else ("here", say.end(s))
        here = s.tail in ("masked", "padded")
        head = f"static void weigh(partial *p{', int here' if here else ''}, float *w)"
    else:
        real = {"zero rows": "s->room", "ignored": "s->count / BLOCK * BLOCK"}.get(s.tail, "s->count")
        last = "s->room" if s.blocks and s.tail == "padded" else real
        head = "static void weigh(const sequence *s, partial *p, float *w)"
    body = _softmax_by_key(s, real) if s.by_key else _softmax_by_head(s, real)
    if last != real:
        clear = [f"for (int t = {real}; t < {last}; t++)"]
        body += say.nest(1, [say.count("h", "GROUP"), *clear], [f"{say.weight(s, 'h', 't')} = 0;"])
    return function(head, body)


def _softmax_by_head(s: Shape, real: str) -> Lines:
    place = say.weight(s, "h", "t")
    highest = "p->highest[h]" if s.online else "-INFINITY"
    body = [
        f"float top = {highest}, sum = 0;",
        *say.nest(0, [say.count("t", real)], [f"top = fmaxf(top, {place});"]),
        *say.nest(0, [say.count("t", real)], [f"{place} = {say.power(s)}({place} - top);"]),
        *say.nest(0, [say.count("t", real)], [f"sum += {place};"]),
    ]
    if s.online:
        body += [
            f"p->shrink[h] = {say.power(s)}(p->highest[h] - top);",
            "p->total[h] = p->total[h] * p->shrink[h] + sum;",
        ]
    else:
        body.append("p->total[h] = sum;")
    return say.nest(1, [say.count("h", "GROUP")], [*body, "p->highest[h] = top;"])


def _softmax_by_key(s: Shape, real: str) -> Lines:
    place, heads = say.weight(s, "h", "t"), say.count("h", "GROUP")
    keys = say.count("t", real)
    body = [
        "    float top[GROUP];",
        *say.nest(1, [heads], [f"top[h] = {'p->highest[h]' if s.online else '-INFINITY'};"]),
        *say.nest(1, [keys, heads], [f"top[h] = {place} > top[h] ? {place} : top[h];"]),
    ]
    if s.online:
        body += say.nest(
            1,
            [heads],
            [
                f"p->shrink[h] = {say.power(s)}(p->highest[h] - top[h]);",
                "p->total[h] *= p->shrink[h];",
            ],
        )
    weigh = [f"{place} = {say.power(s)}({place} - top[h]);", f"p->total[h] += {place};"]
    return [*body, *say.nest(1, [keys, heads], weigh), *say.nest(1, [heads], ["p->highest[h] = top[h];"])]


def values(s: Shape) -> str:
    """The product of weights and values, added to the sums."""
    here = say.knows_here(s)
    head = f"static void add_values(const sequence *s, partial *p{say.block_parameters(s, here)}, const float *w)"
    return function(head, _values_in_registers(s) if s.registers else _values_in_memory(s))


def _values_in_memory(s: Shape) -> Lines:
    heads, dims = say.count("h", "GROUP"), say.dims(s, "CKV")
    sums = say.floats(s, "p->sums[h]", "d")
    body: Lines = []
    if s.online:
        body += say.nest(1, [heads, dims], [say.put(s, "p->sums[h]", "d", f"{sums} * p->shrink[h]")])
    add = say.increase(s, "p->sums[h]", "d", f"weight * {say.value(s, 'value', 'd')}")
    per_head = say.nest(0, [heads], [f"float weight = {say.weight(s, 'h', 't')};", *say.nest(0, [dims], [add])])
    row = f"const {say.row_type(s)} *value = {say.value_row(s, 't')};"
    return [*body, *say.nest(1, [say.count("t", say.end(s))], [row, *per_head])]


def _values_in_registers(s: Shape) -> Lines:
    heads, vectors = s.value_heads > 1, s.value_vectors > 1
    step = "VALUE_VECTORS" * vectors + " * " * (vectors and s.vectors) + "LANES" * s.vectors
    outer = say.count("d", "CKV", step)
    loops = [say.count("i", "VALUE_HEADS")] * heads + [say.count("j", "VALUE_VECTORS")] * vectors
    tile = "tile" + "[i]" * heads + "[j]" * vectors
    h = "h + i" if heads else "h"
    at = ("j * LANES" if s.vectors else "j") if vectors else "0"
    sums = f"p->sums[{h}] + d" if s.vectors else f"p->sums[{h}]"
    offset = at if s.vectors else ("d + j" if vectors else "d")
    begin = say.floats(s, sums, offset) + (f" * p->shrink[{h}]" if s.online else "")
    row = say.value_row(s, "t")
    body = [
        f"{say.kind(s)} tile{'[VALUE_HEADS]' * heads}{'[VALUE_VECTORS]' * vectors};",
        *say.nest(0, loops, [f"{tile} = {begin};"]),
        *say.nest(
            0,
            [say.count("t", say.end(s))],
            [
                f"const {say.row_type(s)} *value = {row} + d;",
                *say.nest(0, loops, [f"{tile} += {say.weight(s, h, 't')} * {say.value(s, 'value', at)};"]),
            ],
        ),
        *say.nest(0, loops, [say.put(s, sums, offset, tile)]),
    ]
    return say.nest(1, [outer, say.count("h", "GROUP", "VALUE_HEADS" * heads)], body)
