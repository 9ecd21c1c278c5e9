"""Stage `screen`: what can be refused by reading. A first gate and a hint; what a kernel really does is seen later."""

from __future__ import annotations

import ast
import re

from benchmarks.candidate import Source
from kernels.task import Task

ALWAYS_FORBIDDEN = {
    "flashinfer": "the baseline", "flash_mla": "a finished kernel", "vllm": "a finished kernel",
    "sglang": "a finished kernel", "fla": "a finished kernel", "kernels": "the judge's side",
    "benchmarks": "the judge's side", "subprocess": "other processes", "multiprocessing": "other processes",
    "threading": "threads", "concurrent": "threads", "asyncio": "threads", "socket": "the network",
    "gc": "the judge's objects", "inspect": "the judge's objects",
}  # fmt: skip
FORBIDDEN_IN_C = dict.fromkeys(("torch", "numpy", "scipy", "triton"), "computing outside the C code")
FORBIDDEN_CALLS = re.compile(
    r"\b(pthread_create|thrd_create|fork|vfork|clone|posix_spawn|execv\w*|execl\w*|system|popen|dlopen|dlsym|syscall|"
    r"socket|ptrace|clock_settime|prctl)\s*\("
)
DEVICES = {"c": ("cpu",), "pytorch": ("cpu", "cuda"), "triton": ("cuda",), "cuda": ("cuda",)}


def screen(source: Source, task: Task, device: str) -> str | None:
    """None, or why this candidate is not worth building."""
    if device not in DEVICES[source.language]:
        needed = " or ".join(DEVICES[source.language])
        return f"a {source.language} candidate runs on {needed}, not on {device}"
    try:
        tree = ast.parse(source.files["kernel.py"])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"kernel.py{line}: is not Python: {error.args[0] if error.args else error}"
    return _signature(tree, task) or _imports(source) or _c_calls(source)


def _signature(tree: ast.Module, task: Task) -> str | None:
    wanted = f"run({', '.join(task.entry)}, state=None)"
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    imported = any(isinstance(n, (ast.ImportFrom, ast.Assign)) and "run" in _names(n) for n in tree.body)
    if not found:
        return None if imported else f"kernel.py: defines no function {wanted}"
    arguments = found[-1].args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg is None and len(names) < len(task.entry):
        return f"kernel.py line {found[-1].lineno}: run takes {len(names)} arguments, the contract is {wanted}"
    return None


def _names(node: ast.ImportFrom | ast.Assign) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _imports(source: Source) -> str | None:
    forbidden = {**ALWAYS_FORBIDDEN, **(FORBIDDEN_IN_C if source.language == "c" else {})}
    for name, content in source.files.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{name}: is not Python: {error.args[0] if error.args else error}"
        for node in ast.walk(tree):
            for module in _imported(node):
                if (root := module.split(".")[0]) in forbidden:
                    line = getattr(node, "lineno", 0)
                    return f"{name} line {line}: imports {root}: {forbidden[root]}, which a candidate may not use"
    return None


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if node.level == 0 else []
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called in ("__import__", "import_module") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def _c_calls(source: Source) -> str | None:
    for name, content in source.files.items():
        if not name.endswith((".c", ".h")):
            continue
        for number, line in enumerate(content.decode().splitlines(), 1):
            code = line.split("//")[0]
            if (call := FORBIDDEN_CALLS.search(code)) is not None:
                return f"{name} line {number}: calls {call[1]}, which a kernel may not (it runs alone, in one thread)"
    return None
