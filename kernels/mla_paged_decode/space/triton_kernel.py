"""kernel.py of a Triton design: what it says of itself, its constants, the device's side, and the host's."""

from __future__ import annotations

from kernels.mla_paged_decode.space import triton_device as device
from kernels.mla_paged_decode.space import triton_words as say
from kernels.mla_paged_decode.space.triton_moves import EQUAL, FEW_SEQUENCES, ROOM, TOKENS, Shape, shape
from kernels.mla_paged_decode.space.triton_words import Lines, function, indented
from kernels.space import Design

RUN = ["q_nope", "q_pe", "ckv_cache", "kpe_cache", "kv_indptr", "kv_indices", "sm_scale", "output", "lse", "state=None"]


def render(design: Design) -> dict[str, str]:
    """kernel.py of a canonical design."""
    s = shape(design)
    jitted = [device.add_tile(s), device.count_parts(s), device.merge(s), device.decode(s), device.merge_all(s)]
    host = [_share(s), _counters(s), _plan(s), _run(s)]
    text = "\n\n".join(part for part in (*jitted, *host) if part)
    return {"kernel.py": f"{_head(s)}\n\n{text}"}


def _head(s: Shape) -> str:
    imports = ["import math", "", *["import torch"] * (s.splits), "import triton", "import triton.language as tl"]
    return "\n".join([f'"""MLA paged decode in Triton: {_summary(s)}."""', "", *imports, "", *_constants(s)]) + "\n"


def _summary(s: Shape) -> str:
    who = f"{s.heads} heads a program" if s.dots else "a program for each sequence and head"
    parts = {"none": "", EQUAL: ", equal parts", TOKENS: ", parts of so many tokens", ROOM: ", parts that fill the GPU"}
    return who + parts[s.split]


def _constants(s: Shape) -> Lines:
    n = s.numbers
    lines = [f"TILE, WARPS = {n['tile']}, {n['warps']}"]
    if s.few:
        lines.append(f"FEW, FEW_TILE, FEW_WARPS = {FEW_SEQUENCES}, {n['few_tile']}, {n['few_warps']}")
    if s.dots:
        lines += [f"STAGES = {n['stages']}", f"DOT = tl.{'bfloat16' if s.bf16 else 'float32'}"]
    lines += {
        "none": [],
        EQUAL: [f"PARTS = {n['parts']}"],
        TOKENS: [f"TOKENS = {n['tokens']}"],
        ROOM: [
            f"PROGRAMS = {n['programs']}  # a multiprocessor",
            f"LEAST = {n['least']}  # tokens that are worth a part",
        ],
    }[s.split]
    if s.splits:
        lines += [f"STORED = torch.{'bfloat16' if s.bf16_parts else 'float32'}"]
        lines += [f"AT_ONCE, DIMS = {n['at_once']}, {n['dims']}  # parts and dimensions that are merged at once"]
        lines += [f"MERGE_WARPS = {n['merge_warps']}"] * s.second
    return lines


def _share(s: Shape) -> str:
    """Tokens of a part, where these are to fill the GPU."""
    if s.split != ROOM:
        return ""
    divided = f" // {s.groups}" if s.groups > 1 else ""
    room = f"PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count{divided}"
    if s.planned:
        body = [
            f"room = max({room}, len(lengths))",
            "share = triton.cdiv(LEAST, tile) * tile",
            "while sum(max(1, triton.cdiv(length, share)) for length in lengths) > room:",
            "    share += max(1, share // tile // 8) * tile",
            "return share",
        ]
        return function(
            "share_of", ["lengths", "device", "tile"], "Tokens of a part, so that all parts find a place.", body, jit=""
        )
    body = [
        f"room = {room}",
        "share = max(LEAST, triton.cdiv(tokens, max(room - batch, room // 4, 1)))",
        "return triton.cdiv(share, tile) * tile",
    ]
    note = "Tokens of a part, so that all parts find a place; from what the host knows without asking the GPU."
    return function("share_of", ["tokens", "batch", "device", "tile"], note, body, jit="")


def _counters(s: Shape) -> str:
    if not s.by_last:
        return ""
    body = [
        "key = (device, torch.cuda.current_stream(device).cuda_stream)",
        "if key not in _counters or _counters[key].shape[0] < count:",
        "    _counters[key] = torch.zeros(max(count, 1024), dtype=torch.int32, device=device)",
        "return _counters[key]",
    ]
    note = "Zeros that each launch leaves as it found them, for the launches of one stream, which follow each other."
    return "_counters = {}\n\n\n" + function("counters_for", ["device", "count"], note, body, jit="")


def _plan(s: Shape) -> str:
    """The table of parts, and where each sequence's parts begin."""
    if not s.planned:
        return ""
    tile = "FEW_TILE if batch_size <= FEW else TILE" if s.few else "TILE"
    share = "TOKENS" if s.split == TOKENS else f"share_of(lengths, kv_indptr.device, {tile})"
    body = [
        "bounds = kv_indptr.tolist()",
        "lengths = [end - begin for begin, end in zip(bounds, bounds[1:])]",
        f"share = {share}",
        "table, slots = [], [0]",
        "for sequence, length in enumerate(lengths):",
        "    count, end = max(1, triton.cdiv(length, share)), bounds[sequence + 1]",
        "    for start in range(bounds[sequence], bounds[sequence] + count * share, share):",
        "        table.append((sequence, start, min(start + share, end), slots[-1], count))",
        "    slots.append(slots[-1] + count)",
        "return tuple(torch.tensor(x, dtype=torch.int32, device=kv_indptr.device) for x in (table, slots))",
    ]
    note = (
        "Of each part its sequence, tokens [start, end), that sequence's first part and number; then first parts alone."
    )
    given = ["kv_indptr", "kv_indices", "batch_size", "num_heads", "device"]
    return function("plan", given, note, body, jit="")


def _run(s: Shape) -> str:
    few = ["tile, warps = (FEW_TILE, FEW_WARPS) if batch <= FEW else (TILE, WARPS)"] * s.few
    body = ["batch = q_nope.shape[0]", "if batch == 0:", "    return", *few, *_items(s)]
    if s.splits:
        body += [
            "parts = torch.empty(items, 16, 512, dtype=STORED, device=q_nope.device)",
            "part_lse = torch.empty(items, 16, dtype=torch.float32, device=q_nope.device)",
        ]
    body += _first_launch(s)
    body += _second_launch(s)
    return function("run", RUN, "", body, jit="")


def _items(s: Shape) -> Lines:
    """How many parts there may be."""
    tile = "tile" if s.few else "TILE"
    if not s.splits:
        return []
    if s.split == EQUAL:
        return ["items = batch * PARTS"]
    if s.planned:
        return [
            "if state is None:",
            "    state = plan(kv_indptr, kv_indices, batch, 16, q_nope.device)",
            "table, slots = state",
            "items = table.shape[0]",
        ]
    share = "TOKENS" if s.split == TOKENS else f"share_of(kv_indices.shape[0], batch, q_nope.device, {tile})"
    return [f"share = {share}", "items = triton.cdiv(kv_indices.shape[0], share) + batch"]


def _first_launch(s: Shape) -> Lines:
    given, constants = device.decode_parameters(s)
    said = {
        "ckv": "ckv_cache",
        "kpe": "kpe_cache",
        "indptr": "kv_indptr",
        "indices": "kv_indices",
        "scale": "sm_scale * math.log2(math.e)",
        "counters": f"counters_for(q_nope.device, batch{f' * {s.groups}' if s.groups > 1 else ''})",
    }
    grid = "items" if s.splits else "batch"
    arguments = [said.get(name, name) for name in given] + [_constant(s, name) for name in constants]
    arguments += [f"num_warps={'warps' if s.few else 'WARPS'}"] + ["num_stages=STAGES"] * s.dots
    return say.call(f"decode[({grid}{f' * {s.groups}' if s.groups > 1 else ''},)](", arguments)


def _second_launch(s: Shape) -> Lines:
    if not s.second:
        return []
    given, constants = device.merge_all_parameters(s)
    arguments = ["kv_indptr" if name == "indptr" else name for name in given]
    arguments += [_constant(s, name) for name in constants] + ["num_warps=MERGE_WARPS"]
    arguments += ["launch_pdl=True"] * s.dependent
    if s.split == EQUAL:
        return say.call("merge_all[(batch * 16, 512 // DIMS)](", arguments)
    some = "items > batch" if s.planned else "share < kv_indices.shape[0]"
    return [f"if {some}:", *indented(say.call("merge_all[(batch * 16, 512 // DIMS)](", arguments, depth=2))]


def _constant(s: Shape, name: str) -> str:
    if name == "BATCH":
        return "BATCH=max(64, triton.next_power_of_2(batch))"
    return f"{name}={'tile' if name == 'TILE' and s.few else name}"
