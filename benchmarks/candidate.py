"""A candidate: its source files, read once, hashed, and copied to a folder that only the judge writes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernels.task import BadInputError

Language = Literal["c", "cuda", "triton", "pytorch"]

SUFFIXES = (".py", ".c", ".h", ".cpp", ".cu", ".cuh", ".md", ".txt", ".json")
MOST_FILES = 64
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """The files of a candidate by relative path, as bytes."""

    name: str
    files: Mapping[str, bytes]

    @property
    def sha256(self) -> str:
        """Hash over paths and contents, in order of path."""
        digest = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    @property
    def language(self) -> Language:
        """What it is written in, by its files: a .cu makes it CUDA, a .c makes it C, then what kernel.py imports."""
        suffixes = {Path(path).suffix for path in self.files}
        if ".cu" in suffixes:
            return "cuda"
        if ".c" in suffixes:
            return "c"
        return "triton" if b"import triton" in self.files["kernel.py"] else "pytorch"


@dataclass(frozen=True)
class Candidate:
    """A source copied to `folder`, where the build adds what it makes."""

    source: Source
    folder: Path


def read(path: Path) -> Source:
    """Read a candidate folder (or its kernel.py); `BadInputError` names the file that will not do."""
    folder = path.parent if path.name == "kernel.py" and path.is_file() else path
    if not folder.is_dir():
        raise BadInputError(f"{path}: no such candidate folder")
    files: dict[str, bytes] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_symlink():
            raise BadInputError(f"{file}: is a symbolic link; a candidate consists of plain files")
        if file.is_dir() or "__pycache__" in file.parts or file.name.startswith("."):
            continue
        if not file.is_file():
            raise BadInputError(f"{file}: is not a plain file")
        if file.suffix in SUFFIXES:
            files[name] = _content(file)
        if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
            raise BadInputError(f"{folder}: more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB of source")
    if "kernel.py" not in files:
        raise BadInputError(f"{folder}: holds no kernel.py")
    return Source(folder.resolve().name, files)


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read: {error.strerror}") from None
    return content


def lay_out(source: Source, folder: Path) -> Candidate:
    """Write the source to a fresh folder, readable by all (the sandbox runs as nobody)."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in source.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return Candidate(source, folder)
