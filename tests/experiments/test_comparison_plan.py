"""Comparisons: the same on any number of processes, resumed without loss, refused in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import load_comparison
from kilowait.experiments.comparison_plan import (
    ComparisonPlan,
    prepare,
    run,
    save,
)
from kilowait.experiments.comparison_results import summarize_comparison
from kilowait.experiments.policy_configs import make_policy_configs
from kilowait.experiments.scenario import Scenario
from kilowait.experiments.window_options import WindowOptions, parse_window_options

TRACES = ("lublin:600:32:0.9:1", "lublin:500:16:1.0:2")


def plan(policies="fcfs,sjf", backfill="easy", traces=TRACES, **protocol):
    settings = {"windows": 4, "window_jobs": 80, "seed": 3, **protocol}
    scenarios = tuple(Scenario(trace) for trace in traces)
    return ComparisonPlan(scenarios, make_policy_configs(policies, backfill), WindowOptions(**settings))


def starts(contests):
    return [
        contest.logs(policy, window).jobs()["start_s"]
        for contest in contests
        for policy in range(len(contest.policies))
        for window in range(len(contest.windows))
    ]


def same(one, two):
    assert len(one) == len(two)
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_processes_do_not_change_a_bit():
    ready = prepare(plan("fcfs,saf,random:seed=3", "none,easy", warmup_jobs=40))
    heard = []
    alone = run(ready, workers=1)
    together = run(ready, workers=2, progress=lambda cell, ran: heard.append((cell, ran)))
    same(starts(alone), starts(together))
    assert len(heard) == len({cell for cell, _ in heard}) == ready.cells == 6 * 8
    assert all(ran for _, ran in heard)
    assert together[0].logs(0, 0).jobs_table["job_id"].tolist() == alone[0].windows[0].jobs["job_id"].tolist()


@pytest.mark.slow
def test_what_goes_wrong_in_a_process_is_told_in_words():
    jobs = Scenario("lublin:300:32", cluster="nodes:4")
    ready = prepare(
        ComparisonPlan(
            (jobs,), make_policy_configs("fcfs,sjf", "easy"), WindowOptions(windows=4, window_jobs=50)
        )
    )
    for workers in (1, 2):
        with pytest.raises(InputError, match="larger than any group"):
            run(ready, workers=workers)


def test_finished_cells_are_not_run_again(tmp_path):
    out = tmp_path / "c"
    ready = prepare(plan())
    first = ready.store(out)
    ran = []
    expected = starts(run(ready, store=first, progress=lambda cell, ran_now: ran.append(ran_now)))
    assert all(ran) and len(list(first.folder.iterdir())) == 16
    next(first.folder.iterdir()).unlink()
    torn = sorted(first.folder.iterdir())[3]
    torn.write_bytes(torn.read_bytes()[:100])
    again, ran = ready.store(out), []
    same(starts(run(ready, store=again, progress=lambda cell, ran_now: ran.append(ran_now))), expected)
    assert (sum(ran), again.found) == (2, 14)
    wider = prepare(plan("fcfs,saf,sjf"))
    store, ran = wider.store(out), []
    run(wider, store=store, progress=lambda cell, ran_now: ran.append((cell[1], ran_now)))
    assert {who for who, ran_now in ran if ran_now} == {1} and store.found == 16


def test_a_written_comparison_can_be_widened(tmp_path):
    out = tmp_path / "c"
    ready = prepare(plan())
    store = ready.store(out)
    contests = run(ready, store=store)
    found = {"traces": [summarize_comparison(contest, "mean_bsld", seed=0) for contest in contests]}
    save(out, ready, contests, found, store, command=["kilowait"], date="today")
    assert not store.folder.exists() and load_comparison(out).manifest["seeds"]["comparison"] == 3
    wider = prepare(plan("fcfs,sjf,saf"))
    store = wider.store(out)
    contests = run(wider, store=store)
    assert store.found == 16
    save(out, wider, contests, found, store, command=["kilowait"], date="today", force=True)
    kept = load_comparison(out)
    assert kept.comparisons[0].labels == ("fcfs", "sjf", "saf")
    same(starts(kept.comparisons), starts(run(wider, workers=1)))


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
def test_cells_of_another_comparison_are_not_taken(tmp_path, changed):
    run(ready := prepare(plan()), store=ready.store(tmp_path / "c"))
    other = prepare(plan(**changed))
    store = other.store(tmp_path / "c")
    run(other, store=store)
    assert store.found == 0


def test_a_changed_agent_or_setting_is_run_again(tmp_path):
    from kilowait.agents import LinearAgent

    agent, out = tmp_path / "agent.json", tmp_path / "c"
    for number, weights in enumerate((np.eye(12)[0], np.eye(12)[1], np.eye(12)[1])):
        LinearAgent(weights).save(agent)
        ready = prepare(plan(f"agent:{agent}"))
        store = ready.store(out)
        run(ready, store=store)
        assert store.found == (8 if number == 2 else 0)
    scenario = Scenario(TRACES[0], at_limit="kill")
    ready = prepare(
        ComparisonPlan(
            (scenario,), make_policy_configs("fcfs", "easy"), WindowOptions(windows=4, window_jobs=80)
        )
    )
    run(ready, store=ready.store(out))
    ready = prepare(
        ComparisonPlan(
            (Scenario(TRACES[0]),),
            make_policy_configs("fcfs", "easy"),
            WindowOptions(windows=4, window_jobs=80),
        )
    )
    store = ready.store(out)
    run(ready, store=store)
    assert store.found == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_loses_nothing(tmp_path, workers):
    """Interrupted in the middle, it leaves finished cells behind, and the same command takes them up."""
    out = tmp_path / "c"
    # More work than the machine can hold, so that the cells take seconds and the signal comes in their midst.
    words = ["compare", "lublin:60000:64:1.4:1", "--policies", "wfp3,unicef,lxf,fcfs", "--windows", "30"]
    words += ["--window", "8000", "--workers", workers, "--out", str(out)]
    command = [sys.executable, "-m", "kilowait.cli", *words]
    going = subprocess.Popen(
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
    while len(list(cells.glob("*.npz"))) < 5:
        assert time.monotonic() < until and going.poll() is None
        time.sleep(0.01)
    os.killpg(going.pid, signal.SIGINT)
    _, told = going.communicate(timeout=60)
    assert going.returncode == 130, told
    assert "repeat the command to resume" in told and "Traceback" not in told
    held = len(list(cells.glob("*.npz")))
    assert 5 <= held < 120 and not out.exists()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{held} of 120 runs were read from the folder and not repeated" in done.stderr
    assert not cells.exists() and (out / "manifest.json").exists()


def test_ctrl_c_while_a_cell_is_written_waits_for_the_file(tmp_path, monkeypatch):
    from kilowait.experiments import cell_cache

    ready = prepare(plan())
    kept = ready.store(tmp_path / "c")
    log = kw.simulate(ready.cases[0].windows[0].jobs, ready.cases[0].cluster, backfill="none")
    write = cell_cache.np.savez

    def interrupted(*given, **columns):
        os.kill(os.getpid(), signal.SIGINT)
        write(*given, **columns)

    monkeypatch.setattr(cell_cache.np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.save((0, 0, 0), log)
    assert kept.load((0, 0, 0)) is not None


def test_perfect_estimates_have_no_clairvoyant():
    assert {who.kind for who in prepare(plan()).policies} == {"rule"}
    jobs = "lublin:600:32:0.9:1"
    rounded = kw.lublin(600, 32, load=0.9, seed=1, estimates="rounded")
    assert not np.array_equal(rounded["estimate_s"], rounded["runtime_s"])
    assert {who.kind for who in plan(traces=(jobs,)).policies} == {"rule", "clairvoyant"}


def test_protocol_as_people_write_it():
    rules = make_policy_configs("fcfs", "easy")
    assert parse_window_options(5, "1024", "0", "auto", 1, rules) == WindowOptions(
        5, 1024, None, 0, 0.0, "all", 1
    )
    assert parse_window_options(5, "7d", "12h", "test", 1, rules) == WindowOptions(
        5, None, 604800.0, 0, 43200.0, "test", 1
    )
    with pytest.raises(InputError, match="write a number of jobs such as 1024 or a span such as 7d"):
        parse_window_options(5, "soon", "0", "all", 1, rules)
    with pytest.raises(InputError, match="say how many with --windows"):
        parse_window_options(None, "1024", "10", "all", 1, rules)


def test_an_agent_is_tried_on_the_last_part(tmp_path):
    from kilowait.agents import LinearAgent

    LinearAgent(np.eye(12)[0]).save(tmp_path / "agent.json")
    who = make_policy_configs(f"saf,agent:{tmp_path / 'agent.json'}", "easy")
    assert [policy.label for policy in who] == ["saf", "agent", "saf, perfect estimates"]
    protocol = parse_window_options(2, "50", "0", "auto", 0, who)
    cut = protocol.cut(kw.lublin(600, 32, seed=1))
    assert protocol.split == "test" and cut.first.min() >= 480


def test_wrong_plans():
    with pytest.raises(UnknownNameError, match="did you mean 'mean_bsld'"):
        ComparisonPlan((), make_policy_configs("fcfs", "easy"), metric="mean_bslt")
    with pytest.raises(UnknownNameError, match="did you mean 'sjf'"):
        make_policy_configs("sfj", "easy")
    with pytest.raises(InputError, match="list of policies is empty"):
        make_policy_configs(",", "easy")
    with pytest.raises(InputError, match="0 processes"):
        run(prepare(plan()), workers=0)


def test_results_speak_of_the_agent(tmp_path):
    from kilowait.agents import LinearAgent

    jobs = kw.lublin(800, 32, load=1.0, seed=4, estimates="rounded")
    cut = kw.cut_windows(jobs, 6, window_jobs=100, seed=0)
    who = {"fcfs": "fcfs", "saf": "saf", "agent": LinearAgent(np.eye(12)[0])}
    contest = kw.compare(cut, kw.Cluster.from_nodes(32), who, clairvoyant=True)
    found = summarize_comparison(contest, "mean_bsld", seed=0)
    assert all("agent" in sentence for sentence in found["sentences"]) and len(found["sentences"]) == 2
    assert found["lower_bounds"]["mean_wait_s"] <= min(row["metrics"]["mean_wait_s"] for row in found["rows"])
    assert set(found["gap_closed"]) == set(contest.labels)
    json.dumps(found["judgement"])
    rules = kw.compare(cut, kw.Cluster.from_nodes(32), ["fcfs", "saf"])
    best = summarize_comparison(rules, "mean_bsld", seed=0)["judgement"]
    assert len(best["pairs"]) == 1
