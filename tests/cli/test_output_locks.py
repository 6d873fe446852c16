"""Commands that write to the same folder: the second one stops with the owner's name, and nothing is mixed or lost."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from kilowait.errors import InputError
from kilowait.experiments.comparison.compare import prepare, run
from kilowait.experiments.comparison.plan import ComparisonPlan, WindowOptions
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.settings import Scenario
from kilowait.files import output_lock

TRACE = "lublin:600:32:0.9:7"
COMMANDS = {
    "simulate": ("simulate", TRACE, "--out"),
    "compare": ("compare", TRACE, "--policies", "fcfs", "--out"),
    "energy": ("energy", "controls", TRACE, "--power", "taurus", "--out"),
    "train": ("train", TRACE, "--generations", "1", "--window", "50", "--windows", "2", "--population", "4", "--out"),
    "train ppo": ("train", TRACE, "--algo", "ppo", "--window", "50", "--out"),
    "tune": ("tune", TRACE, "--trials", "1", "--window", "50", "--out"),
    "synth fit": ("synth", "fit", TRACE, "--model", "bootstrap", "--out"),
    "predict fit": ("predict", "fit", TRACE, "--out"),
    "predict report": ("predict", "report", TRACE, "--out"),
    "synth score": ("synth", "score", TRACE, TRACE, "--out"),
    "quickstart": ("quickstart", "--fast", "--out"),
}


def hold(folder: Path, inside: bool, held, end) -> None:
    os.setpgid(0, 0)
    with output_lock(folder, inside=inside):
        held.set()
        end.wait(120)


@pytest.fixture
def elsewhere():
    """Hold the lock of a folder in a process that is not related to this one."""
    context = multiprocessing.get_context("spawn")
    running = []

    def start(folder: Path, inside: bool) -> int:
        held, end = context.Event(), context.Event()
        process = context.Process(target=hold, args=(folder, inside, held, end))
        process.start()
        running.append((process, end))
        assert held.wait(60)
        return process.pid

    yield start
    for process, end in running:
        end.set()
        process.join()


@pytest.mark.parametrize("name", COMMANDS)
def test_second_writer_stops_before_it_writes(kilowait, tmp_path, elsewhere, name):
    out = tmp_path / "runs" / "x"
    owner = elsewhere(out, name in ("tune", "quickstart"))
    before = sorted(tmp_path.rglob("*"))
    error = kilowait(*COMMANDS[name], out).error()
    assert f"{out} is being written by user " in error and f"process {owner} (started " in error
    assert sorted(tmp_path.rglob("*")) == before


def test_locks_are_released_by_every_command(kilowait, tmp_path):
    for name in ("simulate", "compare", "train", "synth fit"):
        assert kilowait(*COMMANDS[name], tmp_path / name).status == 0
        assert not list(tmp_path.rglob("*lock*"))
    assert (tmp_path / "train.training" / "search.json").exists()


def plan(policies: str) -> ComparisonPlan:
    windows = WindowOptions(windows=2, window_jobs=50)
    return ComparisonPlan((Scenario(TRACE),), make_policy_configs(policies, "easy", clairvoyant=False), windows)


def test_finished_runs_of_another_comparison_are_not_discarded(kilowait, tmp_path):
    out = tmp_path / "c"
    prepared = prepare(plan("fcfs,sjf"))
    run(prepared, workers=1, cache=prepared.cell_cache(out))  # interrupted before its folder was written
    prepare(plan("fcfs,sjf,saf")).cell_cache(out).check_unused()
    other = prepare(plan("fcfs,saf")).cell_cache(out)
    with pytest.raises(InputError, match=r"c\.cells contains 2 finished runs of an interrupted comparison .*--force"):
        other.check_unused()
    other.check_unused(force=True)
    args = ("compare", TRACE, "--policies", "fcfs", "--windows", "2", "--window", "60", "--out", out)
    assert "contains 4 finished runs of an interrupted comparison" in kilowait(*args).error()
    assert len(list((tmp_path / "c.cells").iterdir())) == 4 and not out.exists()
    assert kilowait(*args, "--force").status == 0
    assert not (tmp_path / "c.cells").exists()
    assert json.loads((out / "results.json").read_text())["traces"]


def test_training_in_python_does_not_replace_an_earlier_one(tmp_path):
    import kilowait as kw

    jobs, cluster = kw.lublin(600, nodes=16, load=0.9, seed=1), kw.Cluster.from_nodes(16)
    settings = {"generations": 1, "population": 4, "windows": 2, "window_jobs": 50, "out": tmp_path / "a"}
    kw.train(jobs, cluster, seed=3, **settings)
    before = (tmp_path / "a" / "agent.json").read_bytes()
    with pytest.raises(InputError, match="already contains a training; resume it"):
        kw.train(jobs, cluster, seed=4, **settings)
    assert (tmp_path / "a" / "agent.json").read_bytes() == before
    kw.train(jobs, cluster, seed=4, force=True, **settings)
    assert (tmp_path / "a" / "agent.json").read_bytes() != before
