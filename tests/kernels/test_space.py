"""The space of moves: equal programs are equal designs, and a design that should be right is right."""

import ctypes
import itertools
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import build
from benchmarks.candidate import Candidate, Source
from benchmarks.judge import judge
from kernels.mla_paged_decode.workloads import MlaWorkload
from kernels.space import Choice, Design, Move, Space, table
from kernels.task import BadInputError, load_task

ROOT = Path(__file__).parents[2]
TASK = load_task("mla_paged_decode")
SPACES = {language: TASK.space(language) for language in ("c", "pytorch", "triton")}
C, PYTORCH = SPACES["c"], SPACES["pytorch"]
BLOCKED: dict[str, Choice] = {
    "order": "keys outside", "group": 16, "vectors": "vector extensions", "lanes": 16, "blocking": "blocks",
    "block": 32, "softmax": "online", "convert": "once", "query": "converted once", "head_tile": 4, "key_tile": 4,
    "reduce": "by halves", "values": "in registers", "value_heads": 8, "value_vectors": 2,
}  # fmt: skip
RIGHT: dict[str, tuple[Choice, ...]] = {
    "tail": ("masked", "padded"),
    "empty": ("handled",),
    "degree": (3, 5),
    "product": ("float32",),
}
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C compiler here")
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


def designs(space):
    choices = {move.key: st.sampled_from(move.choices) for move in space.moves}
    return st.fixed_dictionaries(choices).map(space.design)


def right_designs(space):
    choices = {m.key: st.sampled_from(RIGHT.get(m.key, m.choices)) for m in space.moves}
    return st.fixed_dictionaries(choices).map(space.design)


def compiles(d):
    """What a C design must fulfil for its sizes to divide each other, on a machine with any instructions."""
    group = d["group"] if d["order"] == "keys outside" else 1
    lanes = d["lanes"] if d["vectors"] == "vector extensions" else 1
    return (
        group % d["head_tile"] == 0
        and group % d["value_heads"] == 0
        and d["block"] % d["key_tile"] == 0
        and (d["query"] != "transposed" or group % lanes == 0)
        and d["products"] == "fp32"
    )


@each_space
@given(data=st.data())
def test_a_design_is_rendered_alike_each_time_and_by_its_canonical_form(space, data):
    raw = {m.key: data.draw(st.sampled_from(m.choices)) for m in space.moves}
    design = space.canonical(raw)
    assert space.canonical(design) == design
    assert hash(space.canonical(design)) == hash(design)
    assert space.render(raw) == space.render(design)
    assert all(isinstance(content, bytes) and content for content in space.render(design).values())


@each_space
@settings(max_examples=40)
@given(data=st.data())
def test_every_neighbour_is_one_move_away(space, data):
    design = data.draw(designs(space))
    found = space.neighbours(design)
    assert len(set(found)) == len(found)
    assert design not in found
    assert found == space.neighbours(design)
    assert set(found) == {*space.neighbours(design, "structure"), *space.neighbours(design, "number")}
    for neighbour in found:
        assert space.canonical(neighbour) == neighbour
        assert len(space.changes(design, neighbour)) == 1
        assert space.render(neighbour) != space.render(design)


@each_space
def test_different_designs_are_different_programs(space):
    rng = random.Random(1)
    seen: dict[object, Design] = {}
    for _ in range(300):
        design = space.design({m.key: rng.choice(m.choices) for m in space.moves})
        text = tuple(sorted(space.render(design).items()))
        assert seen.setdefault(text, design) == design


@each_space
def test_every_move_is_open_from_somewhere_and_in_the_docs(space):
    for move in space.moves:
        needed: dict[str, Choice] = {}
        for other in reversed(space.moves):
            if other.key in needed or other is move:
                needed |= {key: allowed[0] for key, allowed in other.needs.items()}
        assert move in space.active(space.design(needed)), move.key
    assert table(space) in (ROOT / "docs" / "moves.md").read_text()


def test_changes_are_told_in_words():
    blocked = C.changed(C.start, "blocking", "blocks")
    assert C.changes(C.start, blocked) == ("what a pass takes at a time: whole sequence -> blocks",)
    assert C.changes(C.start, C.start) == ()
    assert C.changed(C.changed(blocked, "block", 64), "blocking", "whole sequence") == C.start


def test_a_bad_design_is_refused_with_the_key_and_what_is_allowed():
    with pytest.raises(BadInputError, match="no move 'colour'; there is order, group"):
        C.design({"colour": "red"})
    with pytest.raises(BadInputError, match="block cannot be 7: allowed is 4, 8, 16, 32, 64, 128"):
        C.design({"block": 7})
    with pytest.raises(BadInputError, match="block cannot be True"):
        C.check({**C.start, "block": True})
    with pytest.raises(BadInputError, match="block cannot be '4'"):
        C.check({**C.start, "block": "4"})
    with pytest.raises(BadInputError, match="block cannot be \\[4\\]"):
        C.check({**C.start, "block": [4]})  # type: ignore[dict-item]
    with pytest.raises(BadInputError, match="no choice for the move 'order': allowed is 'heads outside'"):
        C.check({})
    with pytest.raises(BadInputError, match="no space of moves for the language 'cobol'; there is c, pytorch, triton"):
        TASK.space("cobol")
    C.check(C.start)


def test_a_design_cannot_be_changed_and_a_space_with_a_contradiction_cannot_be_made():
    with pytest.raises(TypeError):
        C.start["order"] = "keys outside"  # type: ignore[index]
    with pytest.raises(AssertionError, match="must stand before"):
        Space("c", [Move("a", "a", "number", (1, 2), 1, {"b": (1,)})], lambda _: {})
    assert Design({"a": 1}) == {"a": 1}


@pytest.fixture(scope="module")
def cases():
    """The hold-outs, their contents and the float64 reference."""
    import torch

    torch.set_num_threads(1)
    source = TASK.source("cpu", 11)
    found = []
    for w in TASK.holdouts("cpu", 4):
        tensors = {n: torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for n, s in TASK.tensors(w).items()}
        source.fill_plan(w, tensors)
        source.fill(w, tensors)
        found.append((w, tensors, TASK.reference(w, tensors, range(w.batch_size))))
    return found


class Compiler:
    """Compiles designs into a folder of their own, without a sandbox: what they do wrong stays within their outputs."""

    def __init__(self, folder):
        self.folder, self.numbers = folder, itertools.count()

    def load(self, design):
        files = C.render(design)
        folder = self.folder / str(next(self.numbers))
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        candidate = Candidate(Source("design", files), folder)
        flags = build.read_flags(candidate, "CFLAGS", build.DEFAULT_FLAGS, build.ALLOWED_FLAG)
        argv = [str(build.compiler()), *flags, "-Wall", "-Werror=uninitialized", "-Wno-psabi", "-shared", "-fPIC"]
        done = subprocess.run(
            [*argv, "-o", "kernel.so", "kernel.c", "-lm"], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        assert "warning" not in done.stderr, done.stderr
        return run_of(files, folder)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("designs")
    yield Compiler(folder)
    shutil.rmtree(folder)


def run_of(files, folder):
    module = {"__file__": str(folder / "kernel.py"), "ctypes": ctypes}
    exec(files["kernel.py"], module)
    return module["run"]


def first_mistake(run, cases):
    """None, or what the first hold-out says that is wrong."""
    for w, tensors, expected in cases:
        assert isinstance(w, MlaWorkload)
        for name in ("output", "lse"):
            tensors[name].fill_(float("nan"))
        run(*[tensors.get(n, TASK.scalars(w).get(n)) for n in TASK.entry])
        if wrong := TASK.mismatch(w, tensors, expected, range(w.batch_size), 0.0):
            return f"{w.id}: {wrong.message}"
    return None


@needs_compiler
@settings(max_examples=20)
@given(design=right_designs(C).filter(compiles))
def test_c_designs_that_should_be_right_are_right_on_the_holdouts(cases, compiler, design):
    assert first_mistake(compiler.load(design), cases) is None


@needs_compiler
@pytest.mark.parametrize("base", [{}, BLOCKED], ids=["start", "blocked"])
def test_every_right_move_from_the_two_ends_is_right(cases, compiler, base):
    here = C.design(base)
    for key, move in ((m.key, m) for m in C.active(here) if m.kind == "structure"):
        for choice in RIGHT.get(key, move.choices):
            design = C.changed(here, key, choice)
            if compiles(design):
                assert first_mistake(compiler.load(design), cases) is None, C.changes(here, design)


@needs_compiler
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"empty": "not handled"}, "empty sequences.*is NaN"),
        ({"tail": "ignored"}, "one token"),
        ({"tail": "zero rows"}, "one token"),
        ({"exp": "polynomial", "degree": 1}, "off by|lse"),
    ],
    ids=str,
)
def test_wrong_choices_are_refused_by_the_holdouts(cases, compiler, wrong, said):
    plain: dict[str, Choice] = {"blocking": "blocks", "order": "keys outside"}
    for base in (BLOCKED, plain):
        mistake = first_mistake(compiler.load(C.design({**base, **wrong})), cases)
        assert mistake is not None
        assert re.search(said, mistake)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"group": 4, "head_tile": 8}, "a group is whole tiles"),
        ({"block": 4, "key_tile": 8}, "a block is whole tiles"),
        ({"query": "transposed", "lanes": 32}, "a vector holds heads of one group"),
        ({"query": "as given", "products": "bf16 pairs", "lanes": 8}, "the instruction for pairs has 16 lanes"),
    ],
    ids=str,
)
def test_sizes_that_do_not_divide_each_other_do_not_compile_and_say_why(compiler, sizes, said):
    with pytest.raises(RuntimeError, match=said):
        compiler.load(C.design({**BLOCKED, **sizes}))


def test_pytorch_designs_that_should_be_right_are_right_on_the_holdouts(cases, tmp_path):
    seen = set()
    for choices in itertools.product(*(RIGHT.get(m.key, m.choices) for m in PYTORCH.moves if m.key != "chunk")):
        keys = (m.key for m in PYTORCH.moves if m.key != "chunk")
        design = PYTORCH.design({**dict(zip(keys, choices, strict=True)), "chunk": 64})
        if design not in seen:
            seen.add(design)
            assert first_mistake(run_of(PYTORCH.render(design), tmp_path), cases) is None, design
    assert len(seen) > 20


def test_pytorch_products_in_bf16_are_refused_by_the_holdouts(cases, tmp_path):
    for operator in ("matmul", "chunked"):
        design = PYTORCH.design({"operator": operator, "product": "bfloat16"})
        assert first_mistake(run_of(PYTORCH.render(design), tmp_path), cases) is not None


@needs_compiler
def test_the_judge_takes_a_rendered_design_and_the_blocked_end_beats_the_baseline(bench):
    workloads = [w for w in bench.workloads if w.id.startswith(TASK.smoke)][:3]
    report = judge(bench, Source("design", C.render(C.design(BLOCKED))), workloads)
    assert report.status == "passed", report.message
    summary = report.summary()
    assert summary is not None
    assert summary.geomean > 1
