"""Reports: what their status follows from, and a reader that trusts no file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import report as reports
from benchmarks.report import RUN_ONLY, Report, Row, Timing
from kernels.task import BadInputError


def make_report(statuses=("passed", "passed"), **changes):
    rows = []
    for i, status in enumerate(statuses):
        row = Row(f"w{i}", 1, 100, status=status, floor_us=3.0, rmse=1e-3, calls_us=[20.0, 22.0])
        if status == "passed":
            row.scopes[RUN_ONLY] = Timing("pytorch", [10.0, 11.0], [20.0 + i, 21.0])
        rows.append(row)
    candidate = {"name": "c", "source_sha256": "0" * 64, "language": "c"}
    return Report("mla_paged_decode", candidate, {"device": "a cpu", "protocol": 1}, rows, **changes)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (("passed", "passed"), "passed"),
        (("passed", "not_run"), "partial"),
        (("wrong_result", "not_run"), "failed"),
        (("timeout", "cheated"), "cheated"),
        (("not_run", "not_run"), "partial"),
        ((), "partial"),
    ],
)
def test_the_status_follows_from_the_rows(statuses, expected):
    assert make_report(statuses).status == expected


def test_an_early_verdict_comes_before_the_rows_and_a_wrong_holdout_fails():
    assert make_report(verdict="build_error").status == "build_error"
    wrong = make_report(holdouts=[{"name": "h", "status": "wrong_result", "message": "no"}])
    assert wrong.status == "failed"
    assert wrong.summary() is None


def test_only_a_candidate_that_passed_everywhere_has_a_geometric_mean():
    assert make_report().summary() is not None
    assert make_report(("passed", "wrong_result")).summary() is None
    assert make_report(("passed", "not_run")).to_json()["summary"] == {"passed": 1, "workloads": 2, "scopes": {}}


def test_a_report_survives_writing_and_reading(tmp_path):
    report = make_report(verified=True, findings=[{"kind": "k", "message": "m", "workload": None}])
    report.write(tmp_path / "deep" / "report.json")
    again = reports.read(tmp_path / "deep" / "report.json")
    assert again.summary() == report.summary()
    assert again.to_json()["rows"] == report.to_json()["rows"]
    assert again.verified
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["report.json"]


def test_the_file_keeps_the_keys_that_others_read():
    data = make_report().to_json()
    for key in ("protocol", "task", "candidate", "conditions", "status", "verified", "repeats", "summary", "rows",
                "profile", "findings", "environment", "seconds", "command"):  # fmt: skip
        assert key in data
    scope = data["rows"][0]["scopes"][RUN_ONLY]
    assert {"candidate_us", "baseline_us", "baseline", "speedup", "interval_95"} <= set(scope)
    figures = data["summary"]["scopes"][RUN_ONLY]
    assert set(figures) == {"geomean", "interval_95", "wins", "worst"}
    assert data["repeats"] == 2


def test_nan_never_gets_into_a_file():
    with pytest.raises(ValueError, match="not JSON compliant"):
        reports.dumps(make_report(seconds={"check": float("nan")}).to_json())


def rounds_of(data):
    return data["rows"][0]["scopes"][RUN_ONLY]["rounds"]


def changed(change):
    data = json.loads(reports.dumps(make_report().to_json()))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(protocol=2), "protocol is 2, this judge reads 1"),
        (lambda d: d.update(rows=3), "report.rows: must be a list"),
        (lambda d: d["rows"][0].pop("tokens"), r"rows\[0\].tokens: must be a whole number, not None"),
        (lambda d: d["rows"][0].update(batch_size=True), r"rows\[0\].batch_size: must be a whole number"),
        (lambda d: d["rows"][1].update(status="fine"), r"rows\[1\].status: must be one of passed"),
        (lambda d: d["rows"][1].update(workload="w0"), "a workload occurs twice"),
        (lambda d: d.update(status="failed"), "status is failed, but the rows say passed"),
        (lambda d: d["summary"]["scopes"][RUN_ONLY].update(geomean=9.9), "9.9 does not follow from the rows"),
        (lambda d: d["summary"]["scopes"].clear(), "is there without its rows, or missing"),
        (lambda d: rounds_of(d).update(candidate_us=[0, 1]), r"candidate_us\[0\]: must be"),
        (lambda d: rounds_of(d).update(candidate_us=[1.0]), "both lists must be of one"),
        (lambda d: d["candidate"].pop("name"), "candidate.name: must be a string"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_right_names_its_field(tmp_path, change, message):
    file = tmp_path / "r.json"
    file.write_text(json.dumps(changed(change)))
    with pytest.raises(BadInputError, match=message) as error:
        reports.read(file)
    assert str(file) in str(error.value)


def test_nan_in_a_file_is_refused(tmp_path):
    file = tmp_path / "r.json"
    file.write_text(reports.dumps(make_report().to_json()).replace("3.0", "NaN", 1))
    with pytest.raises(BadInputError, match="NaN is not a number"):
        reports.read(file)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


def paths(data, prefix=()):
    yield prefix
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from paths(value, (*prefix, key))


EVERY_PATH = [p for p in paths(json.loads(reports.dumps(make_report().to_json()))) if p]


def test_seconds_that_are_no_number_and_numbers_without_end_are_refused():
    for key, value in (("seconds", {"time": None}), ("seconds", {"time": -1}), ("environment", {"load": float("inf")})):
        with pytest.raises(BadInputError, match="seconds.time|infinite"):
            reports.parse(changed(lambda data, key=key, value=value: data.update({key: value})))


@given(st.sampled_from(EVERY_PATH), values)
def test_whatever_stands_in_a_field_it_is_read_or_refused_clearly(path, value):
    def change(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    try:
        parsed = reports.parse(changed(change))
    except BadInputError as error:
        assert str(error)
    else:
        json.dumps(parsed.to_json(), allow_nan=False)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_clearly(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("fuzz") / "r.json"
    file.write_bytes(content)
    with pytest.raises(BadInputError):
        reports.read(file)
