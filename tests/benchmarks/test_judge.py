"""The judge as a whole, on real candidates: what passes, what does not, and what its author is told."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import build, candidate, sandbox
from benchmarks.bench import open_bench
from benchmarks.candidate import Source
from benchmarks.judge import judge, verify
from kernels.task import load_task

TASK = load_task("mla_paged_decode")
BLOCKED = TASK.folder / "c_blocked"
PROCESSES = [b"benchmarks/inside"]
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C compiler here")
SIGNATURE = "def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):\n"
HONEST = (TASK.baselines("cpu")["pytorch_matmul"] / "kernel.py").read_text()


def smoke(bench, count=3):
    return [w for w in bench.workloads if w.id.startswith(TASK.smoke)][:count]


def judge_python(bench, body, **options):
    source = Source("written here", {"kernel.py": body.encode()})
    return judge(bench, source, smoke(bench), **options)


def changed_c(*changes, name="c_blocked"):
    files = dict(candidate.read(TASK.folder / name).files)
    code = files["kernel.c"].decode()
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    return Source("changed", {**files, "kernel.c": code.encode()})


def everything_said(report):
    messages = [report.message, *(h["message"] for h in report.holdouts), *(r.message for r in report.rows)]
    return "\n".join(m for m in messages if m)


def children():
    found = sandbox.descendants(os.getpid())
    return [pid for pid in found if any(p in Path(f"/proc/{pid}/cmdline").read_bytes() for p in PROCESSES)]


@needs_compiler
def test_an_honest_c_kernel_passes_with_times_intervals_and_a_profile(bench):
    report = judge(bench, candidate.read(BLOCKED), smoke(bench), command="a command")
    assert report.status == "passed", everything_said(report)
    summary = report.summary()
    assert summary is not None
    assert summary.geomean > 1
    data = report.to_json()
    assert [h["status"] for h in data["holdouts"]] == ["passed"] * 9
    for row in data["rows"]:
        scope = row["scopes"]["run_only"]
        assert row["status"] == "passed"
        assert scope["candidate_us"] > 0
        assert scope["baseline"] in TASK.baselines("cpu")
        assert 0 < row["rmse"] < 5e-3
        assert row["floor_us"] > 0
        assert row["call_us"] > 0
    assert data["environment"]["sandbox"] == bench.box.kind
    assert {"screen", "build", "check", "time", "profile", "total"} <= set(data["seconds"])
    assert data["profile"]["groups"][0]["gbytes_per_s"] > 0
    assert data["profile"]["build"]["flags"] == ["-O3", "-march=native"]
    assert not data["verified"]


def test_an_honest_pytorch_program_passes(bench):
    assert judge_python(bench, HONEST).status == "passed"


def test_a_kernel_that_returns_its_outputs_passes_as_well(bench):
    body = HONEST + (
        "\nwrite = run\n\n\ndef run(*arguments):\n"
        "    outputs = torch.empty_like(arguments[7]), torch.empty_like(arguments[8])\n"
        "    write(*arguments[:7], *outputs)\n    return outputs\n"
    )
    body = body.replace("def run(*arguments)", SIGNATURE.strip()[:-1]).replace(
        "    outputs = torch",
        "    arguments = (q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)\n"
        "    outputs = torch",
    )
    report = judge_python(bench, body)
    assert report.status == "passed", everything_said(report)


def test_plan_sees_the_page_table_and_hands_its_state_to_run(bench):
    body = HONEST.replace(", state=None", ", state") + (
        "\n\ndef plan(kv_indptr, kv_indices, batch_size, num_heads, device):\n"
        "    assert device == 'cpu' and num_heads == 16 and len(kv_indptr) == batch_size + 1\n"
        "    return int(kv_indptr[-1])\n"
    )
    body = body.replace("    bounds = kv", "    assert state == int(kv_indptr[-1])\n    bounds = kv")
    report = judge_python(bench, body)
    assert report.status == "passed", everything_said(report)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("def run(:", "screened_out", "line 1"),
        ("run = 3\n", "build_error", "does not define a function run"),
        (SIGNATURE + "    return 1 / 0\n", "failed", "line 2: return 1 / 0\nZeroDivisionError: division by zero"),
        ("import nothing_of_that_name\n" + SIGNATURE + "    pass\n", "build_error", "ModuleNotFoundError"),
        (SIGNATURE + "    pass\n", "failed", "left unwritten"),
        (SIGNATURE + "    output.fill_(float('nan'))\n    lse.fill_(0)\n", "failed", "output[0, 0, 0]"),
        (SIGNATURE + "    output.zero_()\n    lse.zero_()\n", "failed", "is 0, should be"),
        (SIGNATURE + "    return output, lse[:, :3]\n", "failed", "lse has shape [1, 3], should be [1, 16]"),
        (SIGNATURE + "    return output.float(), lse\n", "failed", "output has dtype torch.float32, should be torch.b"),
        (SIGNATURE + "    return output\n", "failed", "run returned 1 values"),
        (SIGNATURE + "    __import__('os')._exit(7)\n", "failed", "the process ended with status 7"),
        (SIGNATURE + "    __import__('sys').exit(0)\n", "failed", "SystemExit"),
        (SIGNATURE + "    getattr(__import__('os'), 'fo' + 'rk')()\n", "cheated", "tried to start a thread, a process"),
        (SIGNATURE + "    __import__('thr' + 'eading').Thread(target=print).start()\n", "cheated", "tried to start"),
        (SIGNATURE + "    __import__('ctypes').string_at(0)\n", "failed", "crashed with SIGSEGV"),
        (SIGNATURE + "    bytearray(1 << 40)\n", "failed", "MemoryError"),
        (SIGNATURE + "    ckv_cache.zero_()\n", "failed", "inputs are read-only"),
    ],
)  # fmt: skip
def test_what_goes_wrong_has_a_status_and_a_message_for_its_author(bench, body, status, said):
    report = judge_python(bench, body)
    assert report.status == status, everything_said(report)
    assert said in everything_said(report)
    assert report.summary() is None


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("    while True: pass\n", "still running after 2.0 s of CPU time"),
        ("    __import__('time').sleep(1000)\n", "asleep"),
    ],
)
def test_a_kernel_that_does_not_end_is_ended(bench, loop, said, monkeypatch):
    monkeypatch.setattr("benchmarks.check.HOLDOUT_LIMIT_S", 2.0 if "while" in loop else 0.3)
    begin = time.monotonic()
    report = judge_python(bench, SIGNATURE + loop)
    assert report.status == "failed"
    assert report.holdouts[-1]["status"] == "timeout"
    assert said in everything_said(report)
    assert time.monotonic() - begin < 20


EMPTY_GIVES_NAN = [
    ("lse[h] = count ? highest[h] + log2f(total[h]) : -INFINITY", "lse[h] = highest[h] + log2f(total[h])"),
    ("narrow(count ? sums[h][v] / total[h] : sums[h][v]", "narrow(sums[h][v] / total[h]"),
]
LAST_BLOCK_IS_TAKEN_AS_FULL = [
    ("int here = count - begin < BLOCK ? count - begin : BLOCK", "int here = BLOCK"),
    ("pages[begin + t]", "pages[begin + t < count ? begin + t : count - 1]"),
]
TAILS_READ_THE_NEXT_PAGE = [
    ("memset(keys + here, 0, sizeof keys[0] * (BLOCK - here));", "fill(ckv, kpe, pages[count - 1] + 1, here);"),
    (
        "t < count; t++)\n                for (int i = 0; i < 8",
        "t < BLOCK; t++)\n                for (int i = 0; i < 8",
    ),
    (
        "static void attend(",
        (
            "static void fill(const uint16_t *ckv, const uint16_t *kpe, int64_t page, int here)\n"
            "{ for (int t = here; t < BLOCK; t++) load_row(keys[t], ckv + page * CKV, kpe, 1); }\n\nstatic void attend("
        ),
    ),
]


@needs_compiler
@pytest.mark.parametrize(
    ("changes", "holdout"),
    [(EMPTY_GIVES_NAN, "empty"), (LAST_BLOCK_IS_TAKEN_AS_FULL, "token"), (TAILS_READ_THE_NEXT_PAGE, "token")],
    ids=["only on empty sequences", "only on tails", "only with NaN in unused pages"],
)
def test_a_kernel_that_is_wrong_only_at_the_edges_is_refused_by_a_holdout(bench, changes, holdout):
    report = judge(bench, changed_c(*changes), smoke(bench))
    assert report.status == "failed"
    assert report.holdouts[-1]["status"] in ("wrong_result", "runtime_error"), everything_said(report)
    assert holdout in report.holdouts[-1]["name"], everything_said(report)


@needs_compiler
def test_a_kernel_that_ignores_sm_scale_or_reads_stale_indices_is_refused(bench):
    fixed = changed_c(("q_pe + (row + h) * KPE, sm_scale * log2_e", "q_pe + (row + h) * KPE, 0.13523377f * log2_e"))
    report = judge(bench, fixed, smoke(bench))
    assert report.status == "failed"
    assert "ragged" in report.holdouts[-1]["name"]


@needs_compiler
def test_a_slow_candidate_is_timed_no_further_when_asked(bench):
    source = candidate.read(TASK.folder / "c_naive")
    report = judge(bench, source, [*smoke(bench), bench.workloads[0]], stop_below=0.9)
    assert report.status == "partial"
    assert "below 0.900x: not judged further" in report.message
    assert [row.status for row in report.rows] == ["passed"] * 3 + ["not_run"]
    assert report.summary() is None


@needs_compiler
def test_a_verified_figure_is_a_second_measurement_alone(bench):
    source = candidate.read(BLOCKED)
    claim = judge(bench, source, smoke(bench))
    report = verify(bench, source, claim)
    assert report.verified
    assert report.rows[0].scopes["run_only"].candidate_us != claim.rows[0].scopes["run_only"].candidate_us
    for row in claim.rows:
        timing = row.scopes["run_only"]
        timing.candidate_us = [us / 2 for us in timing.candidate_us]
    exaggerated = verify(bench, source, claim)
    assert [f["kind"] for f in exaggerated.findings] == ["claim_not_verified"]
    assert exaggerated.verified


@needs_compiler
def test_a_crash_on_one_workload_leaves_the_others_judged(bench):
    loop = "for (int b = 0; b < batch; b++) {"
    crash = (loop, f"if (batch == 16 && indptr[16] > 4000) *(volatile int *)8 = 1;\n    {loop}")
    workloads = [w for w in bench.workloads if w.batch_size == 16 and w.tokens < 6000]
    rest = [w for w in workloads if not w.id.startswith(TASK.smoke)]
    report = judge(bench, changed_c(crash), rest)
    assert report.status == "failed"
    assert {row.status for row in report.rows if row.tokens < 4000} == {"passed"}
    assert {row.status for row in report.rows if row.tokens > 4000} == {"runtime_error"}


@needs_compiler
def test_without_bubblewrap_the_report_says_so_and_threads_are_refused_all_the_same():
    with open_bench(TASK, "cpu", choice="off") as unboxed:
        report = judge(unboxed, candidate.read(BLOCKED), smoke(unboxed))
        assert report.status == "passed"
        assert report.to_json()["environment"]["sandbox"] == "none"
        forked = judge_python(unboxed, SIGNATURE + "    getattr(__import__('os'), 'fo' + 'rk')()\n")
        assert forked.status == "cheated"


def test_nothing_is_left_running_when_a_bench_ends():
    before = set(children())
    with open_bench(TASK, "cpu") as bench:
        judge_python(bench, HONEST)
        assert set(children()) - before
    assert set(children()) == before


@pytest.mark.skipif(sandbox.choose("auto").kind == "none", reason="no bubblewrap here")
def test_a_candidate_sees_no_network_no_environment_no_judge_and_no_home(bench, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret")
    look = (
        "import os, pathlib\n"
        + SIGNATURE
        + "    home = pathlib.Path('~').expanduser()\n"
        + f"    assert not os.path.exists({str(TASK.folder / 'reference.py')!r}), 'reference'\n"
        + f"    assert not os.path.exists({str(Path(build.__file__))!r}), 'judge'\n"
        + "    assert 'ANTHROPIC_API_KEY' not in os.environ, 'key'\n"
        + "    assert os.getuid() == 65534, 'user'\n"
        + "    assert sorted(os.listdir('/sys/class/net')) == ['lo'] if os.path.exists('/sys/class/net') else True\n"
        + "    assert len([p for p in os.listdir('/proc') if p.isdigit()]) <= 2, 'processes'\n"
        + "    for place in ('/', '/usr', '/etc'):\n"
        + "        try:\n            open(place + '/x', 'w')\n"
        + "        except OSError:\n            continue\n"
        + "        raise AssertionError('wrote to ' + place)\n"
        + "    raise RuntimeError('all as it should be')\n"
    )
    report = judge_python(bench, look)
    assert "all as it should be" in everything_said(report), everything_said(report)


def test_the_command_line_judges_prints_a_table_and_json_and_sets_its_exit_status(tmp_path):
    out = tmp_path / "report.json"
    base = [sys.executable, "-m", "benchmarks", "judge", "mla_paged_decode"]
    good = str(TASK.baselines("cpu")["pytorch_matmul"])
    done = subprocess.run(
        [*base, good, "--workloads", "7cd78cb9", "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pytorch_matmul (pytorch) on mla_paged_decode" in done.stdout
    assert "geometric mean of 1" in done.stdout
    assert out.is_file()
    (tmp_path / "kernel.py").write_text("def run(:")
    done = subprocess.run([*base, str(tmp_path), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert '"status": "screened_out"' in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["judge", "no_task", "x"], "no task 'no_task'; there is mla_paged_decode"),
        (["judge", "mla_paged_decode", "/no/where"], "/no/where: no such candidate folder"),
        (["judge", "mla_paged_decode", str(BLOCKED), "--workloads", "zzz"], "--workloads: 'zzz' begins 0 workload ids"),
        (["judge", "mla_paged_decode", str(BLOCKED), "--stop-below", "-1"], "must be a positive number, not -1"),
        (["judge", "mla_paged_decode", str(BLOCKED), "--stop-below", "x"], "must be a positive number, not x"),
        (["aa", "mla_paged_decode", "--runs", "0"], "must be a whole number above 0, not 0"),
        (["compare", "/no/where", "/no/where"], "/no/where: cannot be read"),
        (["attacks", "--only", "nothing"], "no attack is called nothing"),
    ],
)
def test_bad_input_gets_one_clear_line_and_status_2(arguments, said):
    done = subprocess.run([sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
