"""What stands at the top of a C kernel: what it does, its constants, its types and its smallest functions."""

from __future__ import annotations

from kernels.mla_paged_decode.space import c_words as say
from kernels.mla_paged_decode.space.c_moves import Shape

TAYLOR = ("1", "0.69314718f", "0.24022651f", "0.05550411f", "0.00961813f", "0.00133336f")
"""Coefficients of 2^x around 0."""

FROM_BF16 = """static inline float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
"""
TO_BF16 = """static inline uint16_t to_bf16(float value) /* round to nearest, ties to even */
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
"""
VECTOR_TYPES = """typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t bits32 __attribute__((vector_size(LANES * 4)));
typedef uint16_t bits16 __attribute__((vector_size(LANES * 2)));
"""
VECTOR_HELPERS = """static inline vec load(const float *source)
{
    return *(const vec *)source;
}

static inline void store(float *target, vec value)
{
    *(vec *)target = value;
}

static inline vec widen(const uint16_t *source)
{
    bits16 narrow;
    memcpy(&narrow, source, sizeof narrow);
    return (vec)(__builtin_convertvector(narrow, bits32) << 16);
}

static inline void narrow(vec value, uint16_t *target) /* round to nearest, ties to even */
{
    bits32 bits = (bits32)value;
    bits16 out = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, bits16);
    memcpy(target, &out, sizeof out);
}
"""
ONE_BY_ONE = """static inline float add_lanes(vec v)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += v[i];
    return sum;
}
"""
PAIRS = """static inline vec add_pairs(vec sum, const uint16_t *a, const uint16_t *b) /* 32 products, two to a lane */
{
    __m512bh left = (__m512bh)_mm512_loadu_si512(a), right = (__m512bh)_mm512_loadu_si512(b);
    return (vec)_mm512_dpbf16_ps((__m512)sum, left, right);
}
"""
FAST_EXP2 = """static inline float fast_exp2(float x) /* x <= 0: a whole power of two times a polynomial */
{{
    x = x < -126 ? -126 : x;
    int32_t whole = (int32_t)(x - 0.5f);
    float part = x - whole, power;
    int32_t bits = (whole + 127) << 23;
    memcpy(&power, &bits, sizeof power);
{polynomial}
    return power * sum;
}}
"""


def about(s: Shape) -> str:
    """The comment at the top and the headers."""
    shared = "one head after another" if s.group == 1 else f"{s.group} heads share each pass over the keys"
    lines = [
        f"/* MLA paged decode: {shared}, {'an online softmax' if s.online else 'two passes over the sequence'}.",
        " *",
        f" * keys      {_keys(s)}",
        f" * queries   {_queries(s)}",
        f" * logits    {_logits(s)}",
        f" * softmax   {_softmax(s)}",
        f" * values    {_values(s)}",
    ]
    if s.prefetch:
        lines.append(f" * prefetch  {s.distance} keys ahead")
    if s.parts > 1:
        lines.append(f" * split     each sequence in {s.parts} parts, merged at the end")
    includes = ["#include <immintrin.h>"] * s.pairs + [
        f"#include <{h}.h>" for h in ("math", "stdint", "stdlib", "string")
    ]
    return "\n".join([*lines, " */", *includes]) + "\n"


def _keys(s: Shape) -> str:
    if not s.blocks:
        return "the whole sequence, " + ("converted from bf16 once" if s.once else "converted from bf16 at each use")
    tail = {
        "masked": "the last one ends with the sequence",
        "padded": "the last one filled up with zeros of weight 0",
        "zero rows": "the last one filled up with zeros",
        "ignored": "whole blocks only",
    }[s.tail]
    how = "converted from bf16 once a pass" if s.once else "converted from bf16 at each use"
    return f"blocks of {s.block}, {how}; {tail}"


def _queries(s: Shape) -> str:
    return {
        "as given": "converted at each use, the scale applied to the logits",
        "converted once": "converted and scaled once",
        "transposed": "converted and scaled once, a row for each dimension",
    }[s.query]


def _logits(s: Shape) -> str:
    lanes = f"vectors of {s.lanes}" if s.vectors else "scalar"
    heads = s.group if s.transposed else s.head_tile
    how = ", products of bf16 pairs" if s.pairs else ""
    return f"{lanes}, tiles of {heads} head{'s' * (heads > 1)} x {s.key_tile} key{'s' * (s.key_tile > 1)}{how}"


def _softmax(s: Shape) -> str:
    power = f"2^x by a polynomial of degree {s.degree}" if s.polynomial else "exp2f"
    return f"{power}; weights lie {'key by key' if s.by_key else 'head by head'}"


def _values(s: Shape) -> str:
    if not s.registers:
        return "added to the sums in memory, key by key"
    unit = "vector" if s.vectors else "dimension"
    return (
        f"tiles of {s.value_heads} head{'s' * (s.value_heads > 1)} x {s.value_vectors} "
        f"{unit}{'s' * (s.value_vectors > 1)} in registers"
    )


def constants(s: Shape) -> str:
    """Sizes, and what has to divide what."""
    sizes = [("GROUP", s.group, True), ("BLOCK", s.block, s.blocks), ("LANES", s.lanes, s.vectors),
             ("HEAD_TILE", s.head_tile, s.head_tile > 1), ("KEY_TILE", s.key_tile, s.key_tile > 1),
             ("VALUE_HEADS", s.value_heads, s.value_heads > 1), ("VALUE_VECTORS", s.value_vectors, s.value_vectors > 1),
             ("AHEAD", s.distance, s.prefetch), ("PARTS", s.parts, s.parts > 1)]  # fmt: skip
    asserts = [("GROUP % HEAD_TILE == 0", "a group is whole tiles", s.head_tile > 1),
               ("BLOCK % KEY_TILE == 0", "a block is whole tiles", s.key_tile > 1),
               ("GROUP % VALUE_HEADS == 0", "a group is whole tiles", s.value_heads > 1),
               ("CKV % (VALUE_VECTORS * LANES) == 0", "a row is whole tiles", s.value_vectors > 1 and s.vectors),
               ("GROUP % LANES == 0", "a vector holds heads of one group", s.transposed and s.vectors),
               ("LANES == 16", "the instruction for pairs has 16 lanes", s.pairs)]  # fmt: skip
    lines = ["enum { HEADS = 16, CKV = 512, KPE = 64, DIM = CKV + KPE };"]
    lines.append("enum { " + ", ".join(f"{name} = {n}" for name, n, used in sizes if used) + " };")
    lines += [f'_Static_assert({condition}, "{why}");' for condition, why, used in asserts if used]
    return "\n".join(lines) + "\n"


def types(s: Shape) -> str:
    """What is worked on, what has come of it so far, and where things are kept."""
    fields = ["const uint16_t *q_nope, *q_pe, *ckv, *kpe;", "const int32_t *pages;"]
    fields += ["const float *keys;"] * s.whole
    fields += ["float *weights;", "int count, room;"] if not s.online else ["int count;"]
    shrink = ", shrink[GROUP]" * s.online
    lines = [
        "typedef struct { /* one sequence, and the queries of one group of heads */",
        *(f"    {line}" for line in [*fields, "float scale;"]),
        "} sequence;",
        "",
        "typedef struct { /* not yet divided by the total */",
        "    _Alignas(64) float sums[GROUP][CKV];",
        f"    float highest[GROUP], total[GROUP]{shrink};",
        "} partial;",
        "",
        "static partial parts[PARTS];" if s.parts > 1 else "static partial all;",
    ]
    if s.once and s.blocks:
        lines.append(f"static _Alignas(64) float keys[BLOCK][{say.row_size(s)}];")
    if s.online:
        lines.append("static _Alignas(64) float weights[GROUP * BLOCK];")
    if s.query == "converted once":
        lines.append("static _Alignas(64) float queries[GROUP][DIM];")
    if s.transposed:
        lines.append("static _Alignas(64) float queries[DIM][GROUP];")
    return "\n".join([*lines, ""])


def helpers(s: Shape) -> str:
    """The functions that everything else uses."""
    parts = []
    if not s.vectors or s.transposed:
        parts.append(FROM_BF16)
    parts += [VECTOR_TYPES, VECTOR_HELPERS] if s.vectors else [TO_BF16]
    if s.vectors and not s.transposed:
        parts.append(_by_halves(s.lanes) if s.halves else ONE_BY_ONE)
    if s.pairs:
        parts.append(PAIRS)
    if s.polynomial:
        parts.append(_fast_exp2(s.degree))
    return "\n".join(parts)


def _by_halves(lanes: int) -> str:
    """Shuffles, so that the sum of n lanes takes log2(n) additions."""
    lines = ["static inline float add_lanes(vec v)", "{"]
    half = lanes // 2
    while half:
        order = ", ".join(str((i + half) % lanes) for i in range(lanes))
        lines.append(f"    v += __builtin_shuffle(v, (bits32){{{order}}});")
        half //= 2
    return "\n".join([*lines, "    return v[0];", "}"]) + "\n"


def _fast_exp2(degree: int) -> str:
    steps = [f"    sum = sum * part + {coefficient};" for coefficient in reversed(TAYLOR[:degree])]
    return FAST_EXP2.format(polynomial="\n".join([f"    float sum = {TAYLOR[degree]};", *steps]))
