"""A design of the C space as files: kernel.c, put together from its parts, and the kernel.py that opens it."""

from __future__ import annotations

from string import Template

from kernels.mla_paged_decode.space import c_logits, c_parts
from kernels.mla_paged_decode.space import c_words as say
from kernels.mla_paged_decode.space.c_moves import Shape, shape
from kernels.mla_paged_decode.space.c_parts import Lines, function
from kernels.mla_paged_decode.space.c_text import about, constants, helpers, types
from kernels.space import Design

KERNEL_PY = Template('''"""Opens kernel.so, which the C code beside this file becomes."""

import ctypes
from pathlib import Path

CFLAGS = [$flags]

_library = ctypes.CDLL(str(Path(__file__).with_name("kernel.so")))
_decode = _library.mla_paged_decode
_decode.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_float, ctypes.c_int] + [ctypes.c_void_p] * 2
_decode.restype = None


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    _decode(
        q_nope.data_ptr(),
        q_pe.data_ptr(),
        ckv_cache.data_ptr(),
        kpe_cache.data_ptr(),
        kv_indptr.data_ptr(),
        kv_indices.data_ptr(),
        sm_scale,
        q_nope.shape[0],
        output.data_ptr(),
        lse.data_ptr(),
    )
''')


def render(design: Design) -> dict[str, str]:
    """kernel.c and kernel.py of a canonical design."""
    s = shape(design)
    parts = [
        about(s), constants(s), types(s), helpers(s), c_parts.rows(s), c_parts.prefetch(s), c_parts.convert(s),
        c_parts.load_keys(s), c_parts.load_queries(s), c_logits.logits(s), c_parts.softmax(s), c_parts.values(s),
        _scan(s), _merge(s), _finish(s), _attend(s), _entry(s),
    ]  # fmt: skip
    flags = ", ".join(f'"{flag}"' for flag in s.flags)
    return {"kernel.c": "\n".join(part for part in parts if part), "kernel.py": KERNEL_PY.substitute(flags=flags)}


def _scan(s: Shape) -> str:
    """The pass, or the two passes, over the keys."""
    body = ["    memset(p, 0, sizeof *p);"]
    place = "weights" if s.online else "s->weights"
    here = say.knows_here(s)
    offset = "" if s.online or not s.blocks else (" + first * GROUP" if s.by_key else " + first")
    load = [f"load_block(s{say.block_arguments(s, s.tail != 'ignored')});"] if s.once and s.blocks else []
    logits = f"logits(s{say.block_arguments(s, here)}, {place}{offset});"
    add = f"add_values(s, p{say.block_arguments(s, here)}, {place}{offset});"
    if s.online:
        body += say.nest(1, [say.count("h", "GROUP")], ["p->highest[h] = -INFINITY;"])
        weigh = f"weigh(p{', here' if s.tail in ('masked', 'padded') else ''}, weights);"
        body += _blocks(s, [*load, logits, weigh, add], s.tail in ("masked", "padded") or bool(load))
    elif s.blocks:
        body += _blocks(s, [*load, logits], here or bool(load))
        body += ["    weigh(s, p, s->weights);", *_blocks(s, [*load, add], here or bool(load))]
    else:
        body += [f"    {logits}", "    weigh(s, p, s->weights);", f"    {add}"]
    return function("static void scan(const sequence *s, partial *p)", body)


def _blocks(s: Shape, body: Lines, here: bool) -> Lines:
    if s.tail == "ignored":
        return say.nest(1, ["for (int first = 0; first + BLOCK <= s->count; first += BLOCK)"], body)
    real = ["int here = s->count - first < BLOCK ? s->count - first : BLOCK;"] if here else []
    return say.nest(1, ["for (int first = 0; first < s->count; first += BLOCK)"], [*real, *body])


def _merge(s: Shape) -> str:
    if s.parts == 1:
        return ""
    body = [
        "    partial *all = &parts[0];",
        *say.nest(
            1,
            ["for (int i = 1; i < PARTS; i++)", say.count("h", "GROUP")],
            [
                "if (parts[i].total[h] == 0)",
                "    continue;",
                "float top = fmaxf(all->highest[h], parts[i].highest[h]);",
                f"float keep = {say.power(s)}(all->highest[h] - top), add = {say.power(s)}(parts[i].highest[h] - top);",
                say.count("d", "CKV"),
                "    all->sums[h][d] = all->sums[h][d] * keep + parts[i].sums[h][d] * add;",
                "all->total[h] = all->total[h] * keep + parts[i].total[h] * add;",
                "all->highest[h] = top;",
            ],
        ),
    ]
    return function("static void merge(void)", body, "all parts into the first")


def _finish(s: Shape) -> str:
    inverse = "s->count ? 1 / p->total[h] : 0" if s.empty else "1 / p->total[h]"
    lse = "p->highest[h] + log2f(p->total[h])"
    scaled = f"{say.floats(s, 'p->sums[h]', 'd')} * inverse"
    write = f"narrow({scaled}, output + h * CKV + d);" if s.vectors else f"output[h * CKV + d] = to_bf16({scaled});"
    body = say.nest(
        1,
        [say.count("h", "GROUP")],
        [
            f"float inverse = {inverse};",
            *say.nest(0, [say.dims(s, "CKV")], [write]),
            f"lse[h] = {f's->count ? {lse} : -INFINITY' if s.empty else lse};",
        ],
    )
    return function("static void finish(const sequence *s, const partial *p, uint16_t *output, float *lse)", body)


def _attend(s: Shape) -> str:
    """One group of heads: all parts of the sequence, then the result."""
    if s.parts == 1:
        body = ["    scan(s, &all);", "    finish(s, &all, output, lse);"]
    else:
        span = [
            "int begin = (int64_t)s->count * i / PARTS, end = (int64_t)s->count * (i + 1) / PARTS;",
            "sequence part = *s;",
            "part.pages += begin;",
            "part.count = end - begin;",
        ]
        if s.whole:
            span.append(f"part.keys += (int64_t)begin * {say.row_size(s)};")
        if not s.online:
            span.append(f"part.room = {_room(s, 'part')};")
        body = [
            *say.nest(1, [say.count("i", "PARTS")], [*span, "scan(&part, &parts[i]);"]),
            "    merge();",
            "    finish(s, &parts[0], output, lse);",
        ]
    return function("static void attend(const sequence *s, uint16_t *output, float *lse)", body)


def _room(s: Shape, name: str) -> str:
    return f"({name}.count + BLOCK - 1) / BLOCK * BLOCK" if s.zero_rows else f"{name}.count"


def _entry(s: Shape) -> str:
    before, after = [], []
    if s.whole:
        before.append("s.keys = load_sequence(&s);")
        after.append("free((float *)s.keys);")
    if not s.online:
        before += [f"s.room = {_room(s, 's')};", "s.weights = malloc(sizeof(float) * GROUP * (s.room + 1));"]
        after.append("free(s.weights);")
    queries = [] if s.raw_query else ["load_queries(&s);"]
    group = [
        "int64_t row = (int64_t)b * HEADS + h;",
        "s.q_nope = q_nope + row * CKV;",
        "s.q_pe = q_pe + row * KPE;",
        *queries,
        "attend(&s, output + row * CKV, lse + row);",
    ]
    body = [
        "    const float log2_e = 1.44269504f;",
        *say.nest(
            1,
            [say.count("b", "batch")],
            [
                "sequence s = {.ckv = ckv, .kpe = kpe, .scale = sm_scale * log2_e};",
                "s.pages = indices + indptr[b];",
                "s.count = indptr[b + 1] - indptr[b];",
                *before,
                *say.nest(0, [say.count("h", "HEADS", "GROUP")], group),
                *after,
            ],
        ),
    ]
    head = (
        "void mla_paged_decode(const uint16_t *q_nope, const uint16_t *q_pe, const uint16_t *ckv,\n"
        "                      const uint16_t *kpe, const int32_t *indptr, const int32_t *indices, float sm_scale,\n"
        "                      int batch, uint16_t *output, float *lse)"
    )
    return function(head, body)
