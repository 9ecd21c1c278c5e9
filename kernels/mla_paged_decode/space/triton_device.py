"""The device's side of a Triton kernel: where a program's keys lie, the pass over them, and the merge of parts."""

from __future__ import annotations

from kernels.mla_paged_decode.space import triton_words as say
from kernels.mla_paged_decode.space.triton_moves import EQUAL, Shape
from kernels.mla_paged_decode.space.triton_words import Lines, function, indented

STATE = "top, total, out"


def add_tile(s: Shape) -> str:
    """The jitted function that takes one step over the keys."""
    parameters = ["pages", "valid", "ckv", "kpe", "q", "qp", "scale", "top", "total", "out"]
    body = ["d = tl.arange(0, 512)", "e = tl.arange(0, 64)"]
    columns = s.again and not s.keys_first
    body += _gather(s, "keys", "ckv", "d", columns)
    body += _gather(s, "rope", "kpe", "e", columns)
    body += _logits(s, columns)
    top, shrink = say.by_head(s, "new_top"), say.by_head(s, "shrink")
    body += [
        f'logits = tl.where({say.by_other(s, "valid")}, logits, float("-inf"))',
        f"new_top = tl.maximum(top, tl.max(logits, {say.axis(s)}))",
        f"weights = tl.exp2(logits - {top})",
        "shrink = tl.exp2(top - new_top)",
        f"total = total * shrink + tl.sum(weights, {say.axis(s)})",
        *_values(s, f"out * {shrink}"),
        "return new_top, total, out",
    ]
    note = "One step: the logits of a tile of keys, their weights beside the highest so far, and the weighted values."
    return function("add_tile", [*parameters, *["DOT: tl.constexpr"] * s.dots], note, body)


def _gather(s: Shape, name: str, cache: str, dims: str, columns: bool) -> Lines:
    """The rows of a tile's pages, as rows or as columns; zeros beyond the end, where pages may hold NaN."""
    size = 512 if cache == "ckv" else 64
    page, dim, valid = ("[None, :]", "[:, None]", "[None, :]") if columns else ("[:, None]", "[None, :]", "[:, None]")
    evict = ['eviction_policy="evict_first"'] * s.evict_first
    place = f"{cache} + pages{page} * {size} + {dims}{dim}"
    convert = ".to(DOT)" if s.dots else ".to(tl.float32)"
    return say.call(f"{name} = tl.load(", [place, f"mask=valid{valid}", "other=0.0", *evict], f"){convert}")


def _logits(s: Shape, columns: bool) -> Lines:
    if not s.dots:
        return ["logits = (tl.sum(keys * q[None, :], 1) + tl.sum(rope * qp[None, :], 1)) * scale"]
    exact = _precision(s)
    if s.keys_first:
        return [f"logits = tl.dot(keys, q{exact})", f"logits = tl.dot(rope, qp, logits{exact}) * scale"]
    keys, rope = ("keys", "rope") if columns else ("tl.trans(keys)", "tl.trans(rope)")
    return [f"logits = tl.dot(q, {keys}{exact})", f"logits = tl.dot(qp, {rope}, logits{exact}) * scale"]


def _values(s: Shape, before: str) -> Lines:
    if not s.dots:
        return [f"out = {before} + tl.sum(keys * weights[:, None], 0)"]
    again = _gather(s, "values", "ckv", "d", s.keys_first) if s.again else []
    exact = _precision(s)
    if s.keys_first:
        values = "values" if s.again else "tl.trans(keys)"
        return [*again, f"out = tl.dot({values}, weights.to(DOT), {before}{exact})"]
    return [*again, f"out = tl.dot(weights.to(DOT), {'values' if s.again else 'keys'}, {before}{exact})"]


def _precision(s: Shape) -> str:
    return "" if s.bf16 else ', input_precision="tf32"'


def count_parts(s: Shape) -> str:
    """The jitted function that both kernels call to find parts, where sequences have different numbers of them."""
    if not s.searched:
        return ""
    body = [
        "begins = tl.load(indptr + b, mask=b < batch, other=0)",
        "ends = tl.load(indptr + b + 1, mask=b < batch, other=0)",
        "return tl.where(b < batch, tl.maximum(tl.cdiv(ends - begins, share), 1), 0)",
    ]
    return function(
        "count_parts", ["b", "indptr", "batch", "share"], "Parts of each sequence: one, if it is empty.", body
    )


def decode_parameters(s: Shape) -> tuple[list[str], list[str]]:
    """What `decode` is given: tensors and numbers, constants."""
    given = ["q_nope", "q_pe", "ckv", "kpe", "table" if s.planned else "indptr", "indices", "output", "lse"]
    given += ["parts", "part_lse"] * s.splits + ["counters"] * s.by_last + ["scale"] + ["share", "batch"] * s.searched
    merging = ["AT_ONCE", "DIMS"] * s.by_last
    return given, ["TILE"] + ["DOT"] * s.dots + ["PARTS"] * (s.split == EQUAL) + ["BATCH"] * s.searched + merging


def decode(s: Shape) -> str:
    """The kernel."""
    given, constants = decode_parameters(s)
    body = [*_place(s), *_query_place(s)]
    if not s.reread:
        body += _query(s)
    body += [
        'top = float("-inf")' if not s.dots else f'top = tl.full(({s.heads},), float("-inf"), tl.float32)',
        "total = 0.0" if not s.dots else f"total = tl.zeros(({s.heads},), tl.float32)",
        f"out = tl.zeros({say.tile_shape(s, '512')}, tl.float32)",
        *_pass(s),
        *_finish(s),
    ]
    if s.dependent:
        body = ["tl.extra.cuda.gdc_launch_dependents()", *body]
    heads = f"{s.heads} heads" if s.dots else "One head"
    note = f"{heads} of one sequence, and {'a part' if s.splits else 'all'} of its keys."
    return function("decode", given + [f"{name}: tl.constexpr" for name in constants], note, body, jit=_jit(s))


def _jit(s: Shape) -> str:
    """Lengths that the host reckons are no reason to compile again."""
    return '@triton.jit(do_not_specialize=["share", "batch"])' if s.searched else "@triton.jit"


def _place(s: Shape) -> Lines:
    """Which sequence, which heads, which of its keys."""
    item = "item" if s.splits else "sequence"
    lines = [f"{item} = tl.program_id(0)"]
    if s.groups > 1:
        times = f" * {s.heads}" if s.dots else ""
        lines = [f"{item} = tl.program_id(0) // {s.groups}", f"head = tl.program_id(0) % {s.groups}{times}"]
    bounds = ["tl.load(indptr + sequence)", "tl.load(indptr + sequence + 1)"]
    if not s.splits:
        return [*lines, f"start = {bounds[0]}", f"end = {bounds[1]}"]
    if s.planned:
        columns = {"sequence": 0, "start": 1, "end": 2, **({"first": 3} if s.by_last else {}), "count": 4}
        return [*lines, *(f"{name} = tl.load(table + item * 5 + {i})" for name, i in columns.items())]
    begin_stop = [f"begin = {bounds[0]}", f"stop = {bounds[1]}"]
    if s.split == EQUAL:
        return [
            *lines,
            "sequence = item // PARTS",
            *begin_stop,
            "share = tl.cdiv(tl.cdiv(stop - begin, PARTS), TILE) * TILE",
            "start = tl.minimum(begin + item % PARTS * share, stop)",
            "end = tl.minimum(start + share, stop)",
        ]
    return [
        *lines,
        "b = tl.arange(0, BATCH)",
        "counts = count_parts(b, indptr, batch, share)",
        "sequence = tl.sum((tl.cumsum(counts, 0) <= item).to(tl.int32), 0)",
        "if sequence >= batch:",
        "    return",
        "first = tl.sum(tl.where(b < sequence, counts, 0), 0)",
        *begin_stop,
        "count = tl.maximum(tl.cdiv(stop - begin, share), 1)",
        "start = begin + (item - first) * share",
        "end = tl.minimum(start + share, stop)",
    ]


def _query_place(s: Shape) -> Lines:
    return [
        "d = tl.arange(0, 512)",
        "e = tl.arange(0, 64)",
        "t = tl.arange(0, TILE)",
        f"row = sequence * 16 + {say.heads(s)}",
    ]


def _query(s: Shape, mask: str = "") -> Lines:
    """The query; at each step if the mask names the step, lest the compiler reads it once."""
    guard = f", mask={mask}, other=0.0" if mask else ""
    convert = ".to(DOT)" if s.dots else ".to(tl.float32)"
    row = say.by_head(s, "row")
    return [
        f"{name} = tl.load({tensor} + {row} * {size} + {say.by_other(s, dim)}{guard}){convert}"
        for name, tensor, size, dim in (("q", "q_nope", 512, "d"), ("qp", "q_pe", 64, "e"))
    ]


def _pass(s: Shape) -> Lines:
    """All steps, with the last one apart if it alone is masked."""
    stop = "full" if s.apart else "end"
    lines = ["full = end - (end - start) % TILE", "every = tl.full((TILE,), 1, tl.int1)"] * s.apart
    if s.ahead:
        lines.append("ahead = tl.load(indices + start + t, mask=start + t < end, other=0)")
    step = [*_pages(s, "at", masked=not s.apart), *_query(s, f"at < {stop}")[: 2 * s.reread]]
    step += _step(s, "every" if s.apart else "valid")
    lines += [f"for at in range(start, {stop}, TILE):", *indented(step)]
    if s.apart:
        last = [*_pages(s, "full", masked=True), *_query(s)[: 2 * s.reread], *_step(s, "valid")]
        lines += ["if full < end:", *indented(last)]
    return lines


def _pages(s: Shape, at: str, *, masked: bool) -> Lines:
    """Page ids of a step; the caches' offsets go beyond 2^31."""
    lines = [f"valid = {at} + t < end"] * masked
    if not s.ahead:
        return [*lines, f"pages = tl.load(indices + {at} + t{', mask=valid, other=0' * masked}).to(tl.int64)"]
    lines.append("pages = ahead.to(tl.int64)")
    if at == "at":
        lines.append("ahead = tl.load(indices + at + TILE + t, mask=at + TILE + t < end, other=0)")
    return lines


def _step(s: Shape, valid: str) -> Lines:
    arguments = ["pages", valid, "ckv", "kpe", "q", "qp", "scale", "top", "total", "out", *["DOT"] * s.dots]
    return say.call(f"{STATE} = add_tile(", arguments, depth=2)


def _finish(s: Shape) -> Lines:
    """The output, or a part to be merged; nothing gives 0 and -inf."""
    lines = [
        "safe_total = tl.where(total > 0, total, 1.0)",
        f"out = out / {say.by_head(s, 'safe_total')}",
        'log_sum = tl.where(total > 0, top + tl.log2(safe_total), float("-inf"))',
    ]
    place = f"{say.by_head(s, '{0}')} * 512 + {say.by_other(s, 'd')}"
    whole = [
        f"tl.store(output + {place.format('row')}, out.to(tl.bfloat16))",
        "tl.store(lse + row, log_sum)",
    ]
    part = [
        f"place = item.to(tl.int64) * 16 + {say.heads(s)}",
        f"tl.store(parts + {place.format('place')}, out.to(parts.dtype.element_ty))",
        "tl.store(part_lse + place, log_sum)",
        *_last_program(s),
    ]
    if not s.splits:
        return [*lines, *whole]
    if s.split == EQUAL:
        return [*lines, *part]
    return [*lines, "if count == 1:", *indented(whole), "else:", *indented(part)]


def _last_program(s: Shape) -> Lines:
    """Whoever stores the last part of a sequence merges them all, and leaves the counter as it was."""
    if not s.by_last:
        return []
    counter = "counters + sequence" + (f" * {s.groups} + head" if s.groups > 1 else "")
    if s.groups > 1 and s.dots:
        counter = f"counters + sequence * {s.groups} + head // {s.heads}"
    heads = say.heads(s) if s.dots else "head + tl.arange(0, 1)"
    first, count = ("sequence * PARTS", "PARTS") if s.split == EQUAL else ("first", "count")
    arguments = ["parts", "part_lse", "output", "lse", "sequence", heads, first, count, "dim", "AT_ONCE", "DIMS"]
    return [
        "tl.debug_barrier()  # all of this part is stored before it is counted",
        f'before = tl.atomic_add({counter}, 1, sem="acq_rel")',
        f"if before == {count} - 1:",
        f"    tl.store({counter}, 0)",
        "    for dim in range(0, 512, DIMS):",
        *indented(indented(say.call("merge(", arguments, depth=4))),
    ]


def merge(s: Shape) -> str:
    """The jitted function that merges some heads and dimensions of a sequence."""
    if not s.splits:
        return ""
    rows = s.heads if s.by_last else 1
    fresh = ', cache_modifier=".cg"' if s.by_last else ""
    body = [
        "k = tl.arange(0, AT_ONCE)",
        "d = dim + tl.arange(0, DIMS)",
        f'top = tl.full(({rows},), float("-inf"), tl.float32)',
        f"total = tl.zeros(({rows},), tl.float32)",
        f"out = tl.zeros(({rows}, DIMS), tl.float32)",
        "for some in range(0, count, AT_ONCE):",
        "    here = some + k < count",
        "    place = (first + some + k).to(tl.int64)[:, None] * 16 + head[None, :]",
        f'    sums = tl.load(part_lse + place, mask=here[:, None], other=float("-inf"){fresh})',
        "    values = parts + place[:, :, None] * 512 + d[None, None, :]",
        f"    values = tl.load(values, mask=here[:, None, None], other=0.0{fresh}).to(tl.float32)",
        "    new_top = tl.maximum(top, tl.max(sums, 0))",
        '    safe_top = tl.where(new_top > float("-inf"), new_top, 0.0)',
        "    weights = tl.exp2(sums - safe_top[None, :])",
        "    shrink = tl.exp2(top - safe_top)",
        "    total = total * shrink + tl.sum(weights, 0)",
        "    out = out * shrink[:, None] + tl.sum(values * weights[:, :, None], 0)",
        "    top = new_top",
        "safe_total = tl.where(total > 0, total, 1.0)",
        "row = sequence * 16 + head",
        "tl.store(output + row[:, None] * 512 + d[None, :], (out / safe_total[:, None]).to(tl.bfloat16))",
        "if dim == 0:",
        '    tl.store(lse + row, tl.where(total > 0, top + tl.log2(safe_total), float("-inf")))',
    ]
    given = ["parts", "part_lse", "output", "lse", "sequence", "head", "first", "count", "dim"]
    note = "Some heads and dimensions of a sequence: its parts' outputs, weighted by their sums of weights."
    return function("merge", [*given, "AT_ONCE: tl.constexpr", "DIMS: tl.constexpr"], note, body)


def merge_all_parameters(s: Shape) -> tuple[list[str], list[str]]:
    """What `merge_all` is given: tensors and numbers, constants."""
    given = ["parts", "part_lse", "output", "lse"] + ["slots"] * s.planned + ["indptr", "share", "batch"] * s.searched
    return given, ["PARTS"] * (s.split == EQUAL) + ["BATCH"] * s.searched + ["AT_ONCE", "DIMS"]


def merge_all(s: Shape) -> str:
    """The kernel of the second launch."""
    if not s.second:
        return ""
    given, constants = merge_all_parameters(s)
    first, count = ("sequence * PARTS", "PARTS") if s.split == EQUAL else ("first", "count")
    arguments = ["parts", "part_lse", "output", "lse", "sequence", "head", first, count, "dim", "AT_ONCE", "DIMS"]
    body = [
        "sequence = tl.program_id(0) // 16",
        "head = tl.program_id(0) % 16 + tl.arange(0, 1)",
        "dim = tl.program_id(1) * DIMS",
        *_parts_of_sequence(s),
        *["tl.extra.cuda.gdc_wait()"] * s.dependent,
        *say.call("merge(", arguments),
    ]
    note = "One head of one sequence, and some dimensions."
    return function("merge_all", given + [f"{name}: tl.constexpr" for name in constants], note, body, jit=_jit(s))


def _parts_of_sequence(s: Shape) -> Lines:
    if s.split == EQUAL:
        return []
    alone = ["if count == 1:", "    return"]
    if s.planned:
        found = ["first = tl.load(slots + sequence)", "count = tl.load(slots + sequence + 1) - first"]
        return [*found, *alone]
    return [
        "b = tl.arange(0, BATCH)",
        "counts = count_parts(b, indptr, batch, share)",
        "first = tl.sum(tl.where(b < sequence, counts, 0), 0)",
        "count = tl.sum(tl.where(b == sequence, counts, 0), 0)",
        *alone,
    ]
