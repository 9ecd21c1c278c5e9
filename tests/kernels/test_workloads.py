"""The published workloads, where their pages lie, and what is in them."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.mla_paged_decode import workloads
from kernels.mla_paged_decode.inputs import MlaSource, place_pages
from kernels.mla_paged_decode.task import PUBLISHED, TASK
from kernels.mla_paged_decode.workloads import MlaWorkload
from kernels.task import BadInputError, load_task, task_names


def empty_tensors(workload):
    return {n: torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for n, s in TASK.tensors(workload).items()}


def count_runs(pages):
    return 1 + int((pages.diff() != 1).sum())


def test_the_47_published_workloads_are_there_in_the_order_of_reports():
    assert len(PUBLISHED) == 47
    assert [sum(w.batch_size == b for w in PUBLISHED) for b in (1, 16, 64)] == [15, 16, 16]
    assert sum(w.tokens for w in PUBLISHED) == 815_452
    assert sorted(PUBLISHED, key=lambda w: (w.batch_size, w.tokens)) == list(PUBLISHED)
    assert len({w.id for w in PUBLISHED}) == 47


def test_a_task_is_found_by_name_and_a_wrong_name_lists_those_there_are():
    assert load_task("mla_paged_decode") is TASK
    assert "mla_paged_decode" in task_names()
    with pytest.raises(BadInputError, match="there is mla_paged_decode"):
        load_task("no_such_task")


@pytest.mark.parametrize("index", [0, 4, 14, 17, 30, 46])
def test_pages_lie_in_as_many_contiguous_runs_as_published(index):
    workload = TASK.workloads("cpu")[index]
    assert isinstance(workload, MlaWorkload)
    pages, unused = place_pages(workload, torch.Generator().manual_seed(index))
    assert len(pages) == workload.tokens == len(pages.unique())
    assert count_runs(pages) == workload.contiguous_runs
    assert len(pages) + len(unused) == workload.num_pages


@given(st.integers(1, 60), st.data(), st.integers(0, 2**31))
def test_any_number_of_runs_can_be_placed(tokens, data, seed):
    runs = data.draw(st.integers(1, tokens))
    spare = data.draw(st.integers(1, 10))
    workload = MlaWorkload("w", 1, tokens, (tokens,), runs, 0.1, num_pages=tokens + spare)
    pages, unused = place_pages(workload, torch.Generator().manual_seed(seed))
    assert sorted([*pages.tolist(), *unused.tolist()]) == list(range(tokens + spare))
    assert count_runs(pages) == runs


def test_every_call_gets_other_contents_and_unused_pages_hold_nan():
    workload = PUBLISHED[3].on("cpu")
    source, tensors = MlaSource("cpu", 5), empty_tensors(workload)
    source.fill_plan(workload, tensors)
    source.fill(workload, tensors)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    used = torch.zeros(workload.num_pages, dtype=torch.bool)
    used[tensors["kv_indices"].long()] = True
    assert not tensors["ckv_cache"][used].isnan().any()
    assert tensors["ckv_cache"][~used].isnan().all()
    assert tensors["kpe_cache"][~used].isnan().all()
    source.fill(workload, tensors)
    for name in ("q_nope", "q_pe", "ckv_cache", "kpe_cache"):
        same = (tensors[name] == before[name]) & ~tensors[name].isnan()
        assert same.float().mean() < 0.05, name


def test_holdouts_cover_what_the_protocol_names():
    names = " ".join(w.id for w in TASK.holdouts("cpu", 1))
    for word in ("one token", "edges of tiles", "empty sequences", "ragged", "repeated", "longer than needed"):
        assert word in names
    lengths = {n for w in workloads.holdouts(1, 0.13) for n in w.kv_lengths}
    assert {0, 1, 31, 32, 33, 63, 64, 65} <= lengths


def test_holdouts_differ_with_the_seed_and_none_is_published():
    shapes = {(w.batch_size, w.tokens) for w in PUBLISHED}
    first, second = workloads.holdouts(1, 0.13), workloads.holdouts(2, 0.13)
    assert [w.kv_lengths for w in first] != [w.kv_lengths for w in second]
    assert not shapes & {(w.batch_size, w.tokens) for w in first}


def test_stale_indices_point_at_unused_pages_and_shared_pages_repeat():
    by_name = {w.id: w for w in workloads.holdouts(3, 0.13)}
    stale = by_name["hold-out: kv_indices longer than needed"]
    tensors = empty_tensors(stale)
    MlaSource("cpu", 1).fill_plan(stale, tensors)
    end = int(tensors["kv_indptr"][-1])
    assert len(tensors["kv_indices"]) == end + stale.stale_indices
    assert not set(tensors["kv_indices"][:end].tolist()) & set(tensors["kv_indices"][end:].tolist())
    shared = by_name["hold-out: shared and repeated pages"]
    tensors = empty_tensors(shared)
    MlaSource("cpu", 1).fill_plan(shared, tensors)
    pages = tensors["kv_indices"].tolist()
    first, second = pages[: shared.kv_lengths[0]], pages[shared.kv_lengths[0] :][: shared.kv_lengths[1]]
    assert set(first) & set(second)
    last = pages[-shared.kv_lengths[-1] :]
    assert last[-1] == pages[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "must be an object with a list 'workloads'"),
        ('{"workloads": [], "sm_scale": "x", "num_pages": 5}', "sm_scale must be a finite number"),
        ('{"workloads": [], "sm_scale": 0.1, "num_pages": true}', "num_pages must be a whole number"),
        ('{"workloads": [{}], "sm_scale": 0.1, "num_pages": 5}', r"workloads\[0\]: must be an object with an 'id'"),
        (
            '{"workloads": [{"id": "a", "kv_lengths": [-1]}], "sm_scale": 0.1, "num_pages": 5}',
            r"workloads\[0\].kv_lengths: must be a list of whole numbers",
        ),
        (
            '{"workloads": [{"id": "a", "kv_lengths": [6]}], "sm_scale": 0.1, "num_pages": 5}',
            "6 tokens do not fit in 5 pages",
        ),
        (
            '{"workloads": [{"id": "a", "kv_lengths": [3], "contiguous_runs": 4}], "sm_scale": 0.1, "num_pages": 5}',
            "contiguous_runs: must be from 1 to the number of tokens",
        ),
    ],
)
def test_a_malformed_workload_file_names_its_field(tmp_path, text, message):
    file = tmp_path / "workloads.json"
    file.write_text(text)
    with pytest.raises(BadInputError, match=message) as error:
        workloads.published(file)
    assert str(file) in str(error.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
rows = st.fixed_dictionaries(
    {}, optional={"id": json_values, "kv_lengths": json_values, "contiguous_runs": json_values}
)


@given(
    st.fixed_dictionaries(
        {}, optional={"workloads": st.lists(rows) | json_values, "sm_scale": json_values, "num_pages": json_values}
    )
)
def test_any_json_is_read_or_refused_clearly(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("fuzz") / "workloads.json"
    file.write_text(json.dumps(data))
    try:
        assert isinstance(workloads.published(file), tuple)
    except BadInputError as error:
        assert str(file) in str(error)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_clearly(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("fuzz") / "workloads.json"
    file.write_bytes(content)
    with pytest.raises(BadInputError):
        workloads.published(file)
