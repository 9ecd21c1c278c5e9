"""Which kernels a call runs on a GPU, and what they take of it: torch's profiler, apart from any timing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST = 64
FIELDS = {
    "registers": "registers per thread",
    "shared_bytes": "shared memory",
    "grid": "grid",
    "block": "block",
    "blocks_per_multiprocessor": "blocks per SM",
    "occupancy_percent": "est. achieved occupancy %",
}


def kernels(call: Callable[[], None]) -> list[dict[str, Any]]:
    """Each launch in order: its name, microseconds, and `FIELDS` where the profiler knows them."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    launches = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launches.sort(key=lambda e: e["ts"])
    return [
        {
            "name": str(e["name"])[:300],
            "us": float(e["dur"]),
            **{field: e["args"][key] for field, key in FIELDS.items() if key in e.get("args", {})},
        }
        for e in launches[:MOST]
    ]
