"""The moves of a PyTorch program, for machines without a C compiler: which operators, how many keys, which types.

The start is one fp32 matrix product after another. `bfloat16` products are a plausible mistake (the logits are rounded
before their softmax), and so is a padded batch (long sequences make the short ones work).
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels.space import Choice, Design, Move

PRODUCTS = {"operator": ("matmul", "chunked")}
ALONE = {"operator": ("matmul",)}
MOVES = (
    Move(
        "operator",
        "operators of the attention",
        "structure",
        ("matmul", "chunked", "flash", "flash in chunks"),
        "matmul",
    ),
    Move("batch", "sequences of a batch", "structure", ("one by one", "padded"), "one by one", ALONE),
    Move(
        "rope",
        "the 64 dimensions that carry the position",
        "structure",
        ("separate", "concatenated"),
        "separate",
        PRODUCTS,
    ),
    Move("product", "element type of the matrix products", "structure", ("float32", "bfloat16"), "float32", PRODUCTS),
    Move(
        "chunk",
        "keys in a chunk",
        "number",
        (64, 128, 256, 512, 1024, 2048),
        128,
        {"operator": ("chunked", "flash in chunks")},
    ),
    Move(
        "gather",
        "how rows are gathered",
        "number",
        ("indexing", "index_select"),
        "indexing",
        {"batch": ("one by one",)},
    ),
    Move("scale", "where the scale is applied", "number", ("logits", "queries"), "logits", PRODUCTS),
    Move(
        "softmax", "softmax and lse", "structure", ("softmax and logsumexp", "one exp"), "softmax and logsumexp", ALONE
    ),
    Move("empty", "sequences without keys", "structure", ("handled", "not handled"), "handled"),
)

SIGNATURE = "def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):"


def render(design: Design) -> dict[str, str]:
    """kernel.py of a canonical design."""
    body = {"matmul": _matmul, "chunked": _chunked, "flash": _flash, "flash in chunks": _flash_in_chunks}[
        str(design["operator"])
    ]
    if design["batch"] == "padded":
        body = _padded
    return {
        "kernel.py": "\n".join([*_head(design), SIGNATURE, *("    " + line if line else "" for line in body(design))])
        + "\n"
    }


def _head(d: Mapping[str, Choice]) -> list[str]:
    how = {
        "flash": "one fused attention a sequence, the heads as queries",
        "flash in chunks": f"fused attention over chunks of {d['chunk']} keys, merged by their lse",
        "chunked": f"matrix products over chunks of {d['chunk']} keys, with an online softmax",
        "matmul": "two matrix products a sequence, with a softmax between",
    }[str(d["operator"])]
    if d["batch"] == "padded":
        how = "two matrix products for the whole batch, padded to its longest sequence"
    type_ = "" if "flash" in str(d["operator"]) else f" in {d['product']}"
    constant = [f"CHUNK = {d['chunk']}", ""] if d["operator"] in ("chunked", "flash in chunks") else []
    return [f'"""MLA paged decode: {how}{type_}."""', "", "import math", "", "import torch", "", *constant, ""]


def _rows(d: Mapping[str, Choice], cache: str) -> str:
    return f"{cache}[pages, 0]" if d["gather"] == "indexing" else f"{cache}[:, 0].index_select(0, pages)"


def _queries(d: Mapping[str, Choice], at: str) -> list[str]:
    to, scale = f".to(torch.{d['product']})", " * sm_scale" if d["scale"] == "queries" else ""
    if d["rope"] == "concatenated":
        return [f"query = torch.cat([q_nope{at}, q_pe{at}], dim=-1){to}{scale}"]
    return [f"query = q_nope{at}{to}{scale}", f"rotated = q_pe{at}{to}{scale}"]


def _logits(d: Mapping[str, Choice]) -> list[str]:
    to = f".to(torch.{d['product']})"
    lines = [f"keys = {_rows(d, 'ckv_cache')}{to}", f"rope = {_rows(d, 'kpe_cache')}{to}"]
    if d["rope"] == "concatenated":
        lines.append("logits = (query @ torch.cat([keys, rope], dim=-1).mT).float()")
    else:
        lines.append("logits = (query @ keys.mT + rotated @ rope.mT).float()")
    return [*lines, "logits *= sm_scale"] if d["scale"] == "logits" else lines


def _weigh(d: Mapping[str, Choice]) -> list[str]:
    """From `logits` to `result` and `log_sum` (base e)."""
    back = ".to(keys.dtype)" if d["product"] == "bfloat16" else ""
    if d["softmax"] == "one exp":
        return [
            "top = logits.amax(dim=-1, keepdim=True)",
            "weights = torch.exp(logits - top)",
            "total = weights.sum(dim=-1, keepdim=True)",
            f"result = (weights{back} @ keys) / total",
            "log_sum = (top + total.log())[..., 0]",
        ]
    return [f"result = torch.softmax(logits, dim=-1){back} @ keys", "log_sum = torch.logsumexp(logits, dim=-1)"]


def _each_sequence(d: Mapping[str, Choice], body: list[str]) -> list[str]:
    empty = ["if begin == end:", "    output[b] = 0", "    lse[b] = -math.inf", "    continue"]
    inner = [*(empty if d["empty"] == "handled" else []), *body]
    loop = "for b, (begin, end) in enumerate(zip(bounds, bounds[1:])):"
    return ["bounds = kv_indptr.tolist()", loop, *("    " + line for line in inner)]


def _matmul(d: Mapping[str, Choice]) -> list[str]:
    body = ["pages = kv_indices[begin:end]", *_queries(d, "[b]"), *_logits(d), *_weigh(d)]
    return _each_sequence(d, [*body, "output[b] = result", "lse[b] = log_sum / math.log(2)"])


def _fused(d: Mapping[str, Choice]) -> list[str]:
    """From `pages` to `attended` [1, 1, 16, 576] and `log_sum` [1, 1, 16] (base e)."""
    return [
        f"keys = torch.cat([{_rows(d, 'ckv_cache')}, {_rows(d, 'kpe_cache')}], dim=-1)[None, None]",
        "attended, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(",
        "    queries[b][None, None], keys, keys, 0.0, False, scale=sm_scale",
        ")",
    ]


def _flash(d: Mapping[str, Choice]) -> list[str]:
    body = ["pages = kv_indices[begin:end]", *_fused(d), "output[b] = attended[0, 0, :, :512]"]
    body.append("lse[b] = log_sum[0, 0] / math.log(2)")
    return ["queries = torch.cat([q_nope, q_pe], dim=-1)", *_each_sequence(d, body)]


def _flash_in_chunks(d: Mapping[str, Choice]) -> list[str]:
    body = [
        "result, log_total = torch.zeros(16, 512), torch.full((16,), -math.inf)",
        "for at in range(begin, end, CHUNK):",
        "    pages = kv_indices[at : min(at + CHUNK, end)]",
        *("    " + line for line in _fused(d)),
        "    both = torch.logaddexp(log_total, log_sum[0, 0])",
        "    result *= torch.exp(log_total - both)[:, None]",
        "    result += torch.exp(log_sum[0, 0] - both)[:, None] * attended[0, 0, :, :512]",
        "    log_total = both",
        "output[b] = result",
        "lse[b] = log_total / math.log(2)",
    ]
    return ["queries = torch.cat([q_nope, q_pe], dim=-1)", *_each_sequence(d, body)]


def _chunked(d: Mapping[str, Choice]) -> list[str]:
    back = ".to(keys.dtype)" if d["product"] == "bfloat16" else ""
    return _each_sequence(
        d,
        [
            *_queries(d, "[b]"),
            "highest = torch.full((16, 1), -math.inf)",
            "total = torch.zeros(16, 1)",
            "summed = torch.zeros(16, 512)",
            "for at in range(begin, end, CHUNK):",
            "    pages = kv_indices[at : min(at + CHUNK, end)]",
            *("    " + line for line in _logits(d)),
            "    top = torch.maximum(highest, logits.amax(dim=-1, keepdim=True))",
            "    weights = torch.exp(logits - top)",
            "    shrink = torch.exp(highest - top)",
            "    total = total * shrink + weights.sum(dim=-1, keepdim=True)",
            f"    summed = summed * shrink + weights{back} @ keys",
            "    highest = top",
            "output[b] = summed / total",
            "lse[b] = ((highest + total.log()) / math.log(2))[:, 0]",
        ],
    )


def _padded(d: Mapping[str, Choice]) -> list[str]:
    """Every sequence as long as the longest; beyond its end a sequence reads its batch's first page with weight 0."""
    body = [
        "bounds = kv_indptr.long()",
        "lengths = bounds[1:] - bounds[:-1]",
        "longest = int(lengths.max())",
        "places = torch.arange(longest)",
        "outside = places[None] >= lengths[:, None]",
        "pages = kv_indices[torch.where(outside, 0, bounds[:-1, None] + places[None])]",
        *_queries(d, ""),
        *_logits(d),
        "logits.masked_fill_(outside[:, None], -math.inf)",
        *_weigh(d),
    ]
    if d["empty"] == "handled":
        body[3:3] = ["if longest == 0:", "    output.zero_()", "    lse.fill_(-math.inf)", "    return"]
        body.append("result[lengths == 0] = 0")
        body.append("log_sum[lengths == 0] = -math.inf")
    return [*body, "output.copy_(result)", "lse.copy_(log_sum / math.log(2))"]
