"""The Triton space: every design passes the screen and is right, as far as can be seen without a GPU."""

import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.candidate import Source, read
from benchmarks.screen import screen
from kernels.space import Design
from kernels.task import load_task

ROOT = Path(__file__).parents[2]
TASK = load_task("mla_paged_decode")
SPACE = TASK.space("triton")
FAST = {"heads": (8, 16), "dims": (256,), "parts": (4,), "tokens": (64,), "least": (32,)}
"""Numbers with which short sequences are cut, and the interpreter is done soon."""
ONE_HEAD = SPACE.design({"split": "parts of so many tokens", "tokens": 64, "merge": "last program", "dims": 256})
SMALL = {"tile": (16, 32), "few_tile": (16, 32), "dot": ("bfloat16",)}
"""Choices with which a program surely fits a multiprocessor."""
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def drawn(rng, only=()):
    return SPACE.design({m.key: rng.choice(dict(only).get(m.key, m.choices)) for m in SPACE.moves})


def settings_of(design):
    return {(move.key, design[move.key]) for move in SPACE.active(design)}


def covering(only):
    """Few designs that together make every allowed choice of every move: of some drawn ones, each time the newest."""
    rng = random.Random(1)
    pool = [drawn(rng, only) for _ in range(200)]
    open_ = set().union(*map(settings_of, pool))
    chosen: list[Design] = []
    while open_:
        chosen.append(max(pool, key=lambda design: len(settings_of(design) & open_)))
        open_ -= settings_of(chosen[-1])
    return chosen


def walks(steps):
    """Designs on random ways through the space, a move at a time."""
    for seed in range(4):
        rng, here = random.Random(seed), SPACE.start
        for _ in range(steps):
            here = rng.choice(SPACE.neighbours(here))
            yield here


def text(design):
    return SPACE.render(design)["kernel.py"].decode()


def begun(mode, sources, folder):
    """The process that answers for some sources."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), "TRITON_INTERPRET": "0" if mode == "compile" else "1"}
    argv = [sys.executable, "-m", "tests.kernels.triton_run", mode, str(folder)]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(sources))
    process.stdin.close()
    return process


def mistakes(process, designs):
    """What it found wrong, each with the design's changes."""
    answers = [json.loads(line) for line in process.stdout]
    assert process.wait() == 0
    return [(SPACE.changes(SPACE.start, d), said) for d, said in zip(designs, answers, strict=True) if said]


@pytest.fixture(scope="module", autouse=True)
def compiling(tmp_path_factory):
    """Compiles beside the other tests."""
    if importlib.util.find_spec("triton") is None:
        yield None
        return
    large = SPACE.design({"heads": 16, "tile": 128, "warps": 8, "stages": 4, "pages": "read a step ahead"})
    designs = [*covering(SMALL), large]
    process = begun("compile", list(map(text, designs)), tmp_path_factory.mktemp("compiled"))
    yield process, designs
    process.kill()
    process.wait()


def test_the_start_is_the_plain_candidate_of_the_task():
    assert read(TASK.start("triton")).files == SPACE.render(SPACE.start)


def test_every_design_on_random_ways_passes_the_screen():
    seen = set()
    for design in itertools.chain([SPACE.start], walks(30)):
        source = Source("design", SPACE.render(design))
        assert source.language == "triton"
        assert screen(source, TASK, "cuda") is None
        compile(source.files["kernel.py"], "kernel.py", "exec")
        seen.add(source.sha256)
    assert len(seen) > 100


def test_designs_are_laid_out_for_people(tmp_path):
    for i, design in enumerate([SPACE.start, *covering({})]):
        (tmp_path / f"{i}.py").write_text(text(design))
    argv = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "--diff", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    argv = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length=120", "--select=F,E", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_screen_refuses_triton_on_a_cpu():
    assert "runs on cuda" in str(screen(Source("start", SPACE.render(SPACE.start)), TASK, "cpu"))


@needs_triton
def test_every_choice_is_right_in_the_interpreter_and_a_mistake_would_be_seen(tmp_path):
    designs = [ONE_HEAD, *covering(FAST), SPACE.start]
    wrong = text(SPACE.start).replace("at + t < end", "at + t <= end")
    assert wrong != text(SPACE.start)
    found = mistakes(begun("interpret", [*map(text, designs), wrong], tmp_path), [*designs, SPACE.start])
    assert [changes for changes, _ in found] == [()], found
    assert "is NaN" in found[0][1]


@needs_triton
def test_pages_beyond_2_to_the_31_are_found(tmp_path):
    apart = SPACE.design({"heads": 16, "values": "read again", "tail": "in a last step", "pages": "read a step ahead"})
    designs = [SPACE.start, apart]
    assert mistakes(begun("vast", list(map(text, designs)), tmp_path), designs) == []


@needs_triton
def test_every_choice_compiles_for_hopper_and_what_is_too_large_is_known(compiling):
    process, designs = compiling
    found = mistakes(process, designs)
    assert [changes for changes, _ in found] == [SPACE.changes(SPACE.start, designs[-1])], found
    assert "bytes of shared memory" in found[0][1]


@needs_triton
@pytest.mark.slow
def test_many_designs_are_right_in_the_interpreter(tmp_path):
    rng = random.Random(7)
    designs = [drawn(rng) for _ in range(40)]
    assert mistakes(begun("interpret", list(map(text, designs)), tmp_path), designs) == []
