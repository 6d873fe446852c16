"""Tests of comparisons: independent of the number of processes, resumable, and checked before they run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import load_comparison
from kilowait.experiments.comparison import run_matrix
from kilowait.experiments.comparison.compare import prepare, run, save
from kilowait.experiments.comparison.plan import ComparisonPlan, WindowOptions, parse_window_options
from kilowait.experiments.comparison.results import summarize_comparison
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.settings import Scenario

TRACES = ("lublin:600:32:0.9:1", "lublin:500:16:1.0:2")


def plan(policies="fcfs,sjf", backfill="easy", traces=TRACES, **window_options):
    settings = {"windows": 4, "window_jobs": 80, "seed": 3, **window_options}
    scenarios = tuple(Scenario(trace) for trace in traces)
    return ComparisonPlan(scenarios, make_policy_configs(policies, backfill), WindowOptions(**settings))


def starts(comparisons):
    return [
        comparison.logs(policy, window).jobs()["start_s"]
        for comparison in comparisons
        for policy in range(len(comparison.policies))
        for window in range(len(comparison.windows))
    ]


def same(one, two):
    assert len(one) == len(two)
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes():
    prepared = prepare(plan("fcfs,saf,random:seed=3", "none,easy", warmup_jobs=40))
    reported = []
    alone = run(prepared, workers=1)
    together = run(prepared, workers=2, progress=lambda cell, ran: reported.append((cell, ran)))
    same(starts(alone), starts(together))
    assert len(reported) == len({cell for cell, _ in reported}) == prepared.cell_count == 6 * 8
    assert all(ran for _, ran in reported)
    assert together[0].logs(0, 0).jobs_table["job_id"].tolist() == alone[0].windows[0].jobs["job_id"].tolist()


def test_progress_of_a_run_in_this_process_is_reported():
    """The work of the two runs, one by one, as a share of a run; each ends with 1."""
    shares = []
    run(prepare(plan(traces=TRACES[:1], windows=1, window_jobs=500)), workers=1, running=shares.append)
    assert shares.count(1.0) >= 2 and all(0 <= share <= 1 for share in shares)


def test_progress_of_runs_in_other_processes_is_reported(monkeypatch):
    """A process stores its unfinished work in shared memory, and the parent process reports the sum."""
    prepared = prepare(plan(traces=TRACES[:1], windows=1, window_jobs=50))
    shares, seen, future = [0.0, 0.25], [], Future()
    inputs = (prepared.cases, prepared.policies, run_matrix._resolve_policies(prepared.policies))
    for name, value in {"_shares": shares, "_slot": 0, "_worker_inputs": inputs, "POLL_S": 0.01}.items():
        monkeypatch.setattr(run_matrix, name, value)

    def running(share):
        seen.append(share)
        if not future.done():
            future.set_result(None)

    run_matrix._share_progress(1)(30, 60, 0.1)  # one run is finished, and half of the next one
    list(run_matrix._completed([future], shares, running))
    assert seen[0] == 1.75
    assert len(run_matrix._run_chunk([(0, 0, 0), (0, 1, 0)])) == 2
    assert shares == [0.0, 0.25]  # a process that has returned its results does not count


@pytest.mark.slow
def test_errors_in_worker_processes_are_raised():
    jobs = Scenario("lublin:300:32", cluster="nodes:4")
    prepared = prepare(
        ComparisonPlan((jobs,), make_policy_configs("fcfs,sjf", "easy"), WindowOptions(windows=4, window_jobs=50))
    )
    for workers in (1, 2):
        with pytest.raises(InputError, match="larger than any group"):
            run(prepared, workers=workers)


def test_finished_cells_are_not_run_again(tmp_path):
    out = tmp_path / "c"
    prepared = prepare(plan())
    first = prepared.cell_cache(out)
    ran = []
    expected = starts(run(prepared, cache=first, progress=lambda cell, ran_now: ran.append(ran_now)))
    assert all(ran) and len(list(first.folder.iterdir())) == 16
    next(first.folder.iterdir()).unlink()
    torn = sorted(first.folder.iterdir())[3]
    torn.write_bytes(torn.read_bytes()[:100])
    again, ran = prepared.cell_cache(out), []
    same(starts(run(prepared, cache=again, progress=lambda cell, ran_now: ran.append(ran_now))), expected)
    assert (sum(ran), again.hits) == (2, 14)
    wider = prepare(plan("fcfs,saf,sjf"))
    cache, ran = wider.cell_cache(out), []
    run(wider, cache=cache, progress=lambda cell, ran_now: ran.append((cell[1], ran_now)))
    assert {policy for policy, ran_now in ran if ran_now} == {1} and cache.hits == 16


def test_policies_can_be_added_to_a_written_comparison(tmp_path):
    out = tmp_path / "c"
    prepared = prepare(plan())
    cache = prepared.cell_cache(out)
    comparisons = run(prepared, cache=cache)
    results = {"traces": [summarize_comparison(comparison, "mean_bsld", seed=0) for comparison in comparisons]}
    save(out, prepared, comparisons, results, cache, command=["kilowait"], date="today")
    assert not cache.folder.exists() and load_comparison(out).manifest["seeds"]["comparison"] == 3
    wider = prepare(plan("fcfs,sjf,saf"))
    cache = wider.cell_cache(out)
    comparisons = run(wider, cache=cache)
    assert cache.hits == 16
    save(out, wider, comparisons, results, cache, command=["kilowait"], date="today", force=True)
    stored = load_comparison(out)
    assert stored.comparisons[0].labels == ("fcfs", "sjf", "saf")
    same(starts(stored.comparisons), starts(run(wider, workers=1)))


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 4},
        {"window_jobs": 81},
        {"warmup_jobs": 5},
        {"traces": ("lublin:600:32:0.9:7", "lublin:500:16:1.0:8")},
        {"backfill": "none"},
    ],
)
def test_cells_of_a_different_comparison_are_not_reused(tmp_path, changed):
    run(prepared := prepare(plan()), cache=prepared.cell_cache(tmp_path / "c"))
    other = prepare(plan(**changed))
    cache = other.cell_cache(tmp_path / "c")
    run(other, cache=cache)
    assert cache.hits == 0


def test_cells_are_run_again_after_a_change_of_agent_or_setting(tmp_path):
    from kilowait.agents import LinearAgent

    agent, out = tmp_path / "agent.json", tmp_path / "c"
    for number, weights in enumerate((np.eye(12)[0], np.eye(12)[1], np.eye(12)[1])):
        LinearAgent(weights).save(agent)
        prepared = prepare(plan(f"agent:{agent}"))
        cache = prepared.cell_cache(out)
        run(prepared, cache=cache)
        assert cache.hits == (8 if number == 2 else 0)
    scenario = Scenario(TRACES[0], at_limit="kill")
    prepared = prepare(
        ComparisonPlan((scenario,), make_policy_configs("fcfs", "easy"), WindowOptions(windows=4, window_jobs=80))
    )
    run(prepared, cache=prepared.cell_cache(out))
    prepared = prepare(
        ComparisonPlan(
            (Scenario(TRACES[0]),), make_policy_configs("fcfs", "easy"), WindowOptions(windows=4, window_jobs=80)
        )
    )
    cache = prepared.cell_cache(out)
    run(prepared, cache=cache)
    assert cache.hits == 0


def test_cells_are_run_again_after_a_change_of_the_files_of_a_policy(tmp_path):
    """An agent named by its folder, an agent with user estimates, and a policy file are recognized by their content."""
    from kilowait.agents import LinearAgent

    folder, rule, out = tmp_path / "run", tmp_path / "mine.py", tmp_path / "c"
    folder.mkdir()
    for number, sign in enumerate(("", "-", "-")):
        LinearAgent(np.eye(12)[min(number, 1)]).save(folder / "agent.json")
        rule.write_text(f"import kilowait as kw\n\n@kw.policy\ndef mine(job, now):\n    return {sign}job.nodes\n")
        prepared = prepare(plan(f"agent:{folder},users:agent:{folder},rule:{rule}:mine"))
        cache = prepared.cell_cache(out)
        run(prepared, cache=cache)
        assert cache.hits == (24 if number == 2 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_comparison_resumes_after_ctrl_c(tmp_path, workers):
    """An interrupted comparison stores its finished cells, and the same command continues with them."""
    out = tmp_path / "c"
    # A load above 1 makes long queues, so that the cells take seconds and the signal arrives between them.
    arguments = ["compare", "lublin:60000:64:1.4:1", "--policies", "wfp3,unicef,lxf,fcfs", "--windows", "30"]
    arguments += ["--window", "8000", "--workers", workers, "--out", str(out)]
    command = [sys.executable, "-m", "kilowait.cli", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background may have made them deaf to it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    cells = Path(f"{out}.cells")
    until = time.monotonic() + 120
    while len(list(cells.glob("*.safetensors"))) < 5:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "repeat the command to resume" in stderr and "Traceback" not in stderr
    finished = len(list(cells.glob("*.safetensors")))
    assert 5 <= finished < 120 and not out.exists()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{finished} of 120 runs were read from the folder and not repeated" in done.stderr
    assert not cells.exists() and (out / "manifest.json").exists()


def test_ctrl_c_while_a_cell_is_written_leaves_no_part_of_it(tmp_path, monkeypatch):
    from kilowait import checkpoint

    prepared = prepare(plan())
    cache = prepared.cell_cache(tmp_path / "c")
    log = kw.simulate(prepared.cases[0].windows[0].jobs, prepared.cases[0].cluster, backfill="none")
    write = checkpoint.write_safetensors

    def interrupted(path, arrays, metadata):
        name = next(iter(arrays))
        arrays[name] = Interrupting(arrays[name])
        write(path, arrays, metadata)

    class Interrupting(np.ndarray):
        """An array that is interrupted by Ctrl-C while its bytes are written."""

        def __new__(cls, array):
            return array.view(cls)

        @property
        def data(self):
            os.kill(os.getpid(), signal.SIGINT)
            return np.ndarray.data.__get__(self)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_safetensors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.save((0, 0, 0), log)
    assert cache.load((0, 0, 0)) is None
    assert not [path for path in cache.folder.glob("*") if path.suffix == ".safetensors"]
    cache.save((0, 0, 0), log)
    assert np.array_equal(cache.load((0, 0, 0)).end_s, log.end_s)


def test_no_clairvoyant_policy_if_all_estimates_are_exact():
    assert {config.kind for config in prepare(plan()).policies} == {"rule"}
    jobs = "lublin:600:32:0.9:1"
    rounded = kw.lublin(600, 32, load=0.9, seed=1, estimates="rounded")
    assert not np.array_equal(rounded["estimate_s"], rounded["runtime_s"])
    assert {config.kind for config in plan(traces=(jobs,)).policies} == {"rule", "clairvoyant"}


def test_window_options_are_parsed():
    configs = make_policy_configs("fcfs", "easy")
    assert parse_window_options(5, "1024", "0", "auto", 1, configs) == WindowOptions(5, 1024, None, 0, 0.0, "all", 1)
    assert parse_window_options(5, "7d", "12h", "test", 1, configs) == WindowOptions(
        5, None, 604800.0, 0, 43200.0, "test", 1
    )
    with pytest.raises(InputError, match="write a number of jobs such as 1024 or a duration such as 7d"):
        parse_window_options(5, "soon", "0", "all", 1, configs)
    with pytest.raises(InputError, match="give their number with --windows"):
        parse_window_options(None, "1024", "10", "all", 1, configs)


def test_agents_are_compared_on_the_test_split(tmp_path):
    from kilowait.agents import LinearAgent

    LinearAgent(np.eye(12)[0]).save(tmp_path / "agent.json")
    configs = make_policy_configs(f"saf,agent:{tmp_path / 'agent.json'}", "easy")
    assert [policy.label for policy in configs] == ["saf", "agent", "saf, perfect estimates"]
    window_options = parse_window_options(2, "50", "0", "auto", 0, configs)
    cut = window_options.cut(kw.lublin(600, 32, seed=1))
    assert window_options.split == "test" and cut.first.min() >= 480


def test_invalid_plans_are_rejected():
    with pytest.raises(UnknownNameError, match="did you mean 'mean_bsld'"):
        ComparisonPlan((), make_policy_configs("fcfs", "easy"), metric="mean_bslt")
    with pytest.raises(UnknownNameError, match="did you mean 'sjf'"):
        make_policy_configs("sfj", "easy")
    with pytest.raises(InputError, match="list of policies is empty"):
        make_policy_configs(",", "easy")
    with pytest.raises(InputError, match="number of processes is 0"):
        run(prepare(plan()), workers=0)


def test_summary_compares_the_agent_with_all_policies(tmp_path):
    from kilowait.agents import LinearAgent

    jobs = kw.lublin(800, 32, load=1.0, seed=4, estimates="rounded")
    cut = kw.cut_windows(jobs, 6, window_jobs=100, seed=0)
    policies = {"fcfs": "fcfs", "saf": "saf", "agent": LinearAgent(np.eye(12)[0])}
    comparison = kw.compare(cut, kw.Cluster.from_nodes(32), policies, clairvoyant=True)
    results = summarize_comparison(comparison, "mean_bsld", seed=0)
    compared = [
        sentence for sentence in results["sentences"] if sentence.startswith("The difference between agent and ")
    ]
    assert {sentence.split()[5] for sentence in compared} == {"saf", "fcfs"}
    assert any("rests on only 6 windows" in sentence for sentence in results["sentences"])
    assert results["lower_bounds"]["mean_wait_s"] <= min(row["metrics"]["mean_wait_s"] for row in results["rows"])
    assert set(results["gap_closed"]) == set(comparison.labels)
    json.dumps(results["judgement"])
    without_agent = kw.compare(cut, kw.Cluster.from_nodes(32), ["fcfs", "saf"])
    best = summarize_comparison(without_agent, "mean_bsld", seed=0)["judgement"]
    assert len(best["pairs"]) == 1
