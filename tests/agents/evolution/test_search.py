"""Checkpoints of evolution strategies: resumed searches give the same result; damaged files are errors."""

import os

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import BatchObjective, BatchSearchSettings, EvolutionStrategy, train_linear_agent
from kilowait.agents.evolution.gpu import GpuObjective, GpuSearchSettings
from kilowait.agents.evolution.power import PowerObjective, PowerSearchSettings, SlowdownLimit
from kilowait.agents.evolution.search import CHECKPOINT_FILE, FORMAT, CheckpointDir, Generation, SearchCheckpoint
from kilowait.envs.power_setup import PowerConfig
from kilowait.errors import InputError
from kilowait.experiments.gpu_options import run_speeds
from kilowait.synth import GpuWorkloadSettings, gpu_workload

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(900, 32, load=0.9, seed=3)
PARTS = (JOBS[:540], JOBS[540:720])
GPUS = kw.Cluster.preset("gpu-mixed")
GPU_JOBS = gpu_workload(300, GPUS, GpuWorkloadSettings(shared=0.3), load=1.4, seed=5)
QUICK = {"seed": 1, "generations": 3, "population": 4, "windows": 2, "window_jobs": 60}


def train_batch_agent(progress=None, checkpoint_dir=None, **settings):
    objective = BatchObjective(*PARTS, MACHINE, BatchSearchSettings(**{**QUICK, **settings}))
    return train_linear_agent(objective, progress=progress, checkpoint_dir=checkpoint_dir)


def train_power_agent(progress=None, checkpoint_dir=None, **settings):
    power = PowerConfig("taurus", power_controls="sleep=timeout:600")
    objective = PowerObjective(*PARTS, MACHINE, power, PowerSearchSettings(**{**QUICK, **settings}))
    return train_linear_agent(objective, progress=progress, checkpoint_dir=checkpoint_dir)


def train_gpu_agent(progress=None, checkpoint_dir=None, **settings):
    gpu_settings = {"speeds": lambda jobs: run_speeds("auto", jobs, GPUS), "placements": ("first",), "window_jobs": 40}
    objective = GpuObjective(
        GPU_JOBS[:100], GPU_JOBS[100:], GPUS, GpuSearchSettings(**{**QUICK, **gpu_settings, **settings})
    )
    return train_linear_agent(objective, progress=progress, checkpoint_dir=checkpoint_dir)


SEARCHES = {"batch": train_batch_agent, "power": train_power_agent, "gpu": train_gpu_agent}


class Killed(Exception):
    pass


@pytest.fixture(scope="module", params=SEARCHES)
def search(request, tmp_path_factory):
    """A search, the agent file of an uninterrupted run, and its history."""
    folder = tmp_path_factory.mktemp(request.param)
    agent, history = SEARCHES[request.param]()
    return (SEARCHES[request.param], agent.save(folder / "agent.json").read_bytes(), [str(one) for one in history])


def killed_at(checkpoint_number, monkeypatch, run, folder):
    """Kill the search at the checkpoint of number `moment`, before the new file replaces the old one."""
    times, replaced = 0, os.replace

    def replace_or_die(*paths):
        nonlocal times
        times += 1
        if times == checkpoint_number:
            raise Killed
        replaced(*paths)

    monkeypatch.setattr(os, "replace", replace_or_die)
    with pytest.raises(Killed):
        run(checkpoint_dir=CheckpointDir(folder))
    monkeypatch.setattr(os, "replace", replaced)


def test_search_killed_at_any_checkpoint_resumes_exactly(search, tmp_path, monkeypatch):
    run, uninterrupted, history = search
    agent, history_again = run(checkpoint_dir=CheckpointDir(tmp_path / "never"))
    assert agent.save(tmp_path / "agent.json").read_bytes() == uninterrupted
    last = FORMAT.read(tmp_path / "never" / CHECKPOINT_FILE)
    starts = -(-len(last["start_scores"]) // 4)
    # while the first and the last starts are evaluated, in the second generation and in the last
    for checkpoint_number in (2, 1 + starts, 3 + starts, 4 + starts):
        folder = tmp_path / str(checkpoint_number)
        killed_at(checkpoint_number, monkeypatch, run, folder)
        reported = []
        agent, history_again = run(checkpoint_dir=CheckpointDir(folder, resume=True), progress=reported.append)
        assert agent.save(folder / "agent.json").read_bytes() == uninterrupted
        assert [str(one) for one in history_again] == history
        done = max(0, checkpoint_number - 2 - starts)
        assert [one.number for one in reported] == list(range(done + 1, 4))


def test_search_killed_twice_resumes_exactly(search, tmp_path):
    run, uninterrupted, _ = search

    def kill_at(number):
        def kill(done):
            if done.number == number:
                raise Killed

        return kill

    for number, resume in ((1, False), (2, True)):
        with pytest.raises(Killed):
            run(checkpoint_dir=CheckpointDir(tmp_path, resume), progress=kill_at(number))
    agent, _ = run(checkpoint_dir=CheckpointDir(tmp_path, resume=True), threads=2)
    assert agent.save(tmp_path / "agent.json").read_bytes() == uninterrupted


def test_finished_search_can_be_resumed_and_extended(tmp_path):
    first, _ = train_batch_agent(checkpoint_dir=CheckpointDir(tmp_path))
    reported = []
    again, history = train_batch_agent(checkpoint_dir=CheckpointDir(tmp_path, resume=True), progress=reported.append)
    assert np.array_equal(first.weights, again.weights) and first.provenance == again.provenance
    assert reported == history[-1:]  # the result is validated again, without another generation
    longer, history = train_batch_agent(checkpoint_dir=CheckpointDir(tmp_path, resume=True), generations=5)
    fresh, straight = train_batch_agent(generations=5)
    assert np.array_equal(longer.weights, fresh.weights) and longer.provenance == fresh.provenance
    assert [str(one) for one in history] == [str(one) for one in straight]


@pytest.fixture(scope="module")
def started_search(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    train_batch_agent(checkpoint_dir=CheckpointDir(folder), generations=1)
    return folder


@pytest.mark.parametrize(
    ("run", "changes", "message"),
    [
        (
            train_batch_agent,
            {"seed": 2},
            "started with seed 1, not 2; resume with the same value, or start again with --force",
        ),
        (train_batch_agent, {"objective": "mean_wait_s"}, "objective mean_bsld, not mean_wait_s"),
        (train_batch_agent, {"backfill": "none"}, "backfill easy, not none"),
        (train_batch_agent, {"max_wait_s": 3600.0}, "max_wait_s None, not 3600"),
        (train_batch_agent, {"population": 6}, "population 4, not 6"),
        (train_power_agent, {}, "search linear batch agent, not linear power agent"),
    ],
)
def test_resume_with_other_settings_keeps_file(started_search, run, changes, message):
    before = (started_search / CHECKPOINT_FILE).read_bytes()
    with pytest.raises(InputError, match=message):
        run(checkpoint_dir=CheckpointDir(started_search, resume=True), **changes)
    assert (started_search / CHECKPOINT_FILE).read_bytes() == before


def test_slowdown_limit_and_placements_are_part_of_identity(tmp_path):
    train_power_agent(checkpoint_dir=CheckpointDir(tmp_path / "power_controls"), generations=1)
    with pytest.raises(InputError, match=r"slowdown_limit \[1.1, 'saf'\], not \[1.3, 'saf'\]"):
        train_power_agent(
            checkpoint_dir=CheckpointDir(tmp_path / "power_controls", resume=True), slowdown_limit=SlowdownLimit(1.3)
        )
    train_gpu_agent(checkpoint_dir=CheckpointDir(tmp_path / "gpu"), generations=1)
    with pytest.raises(InputError, match=r"placements \['first'\], not \['best'\]"):
        train_gpu_agent(checkpoint_dir=CheckpointDir(tmp_path / "gpu", resume=True), placements=("best",))


def test_invalid_search_writes_nothing(tmp_path):
    def on_start():
        raise AssertionError("the search started")

    for run, wrong in (
        (train_batch_agent, {"window_jobs": 5000}),
        (train_power_agent, {"objective": "co2"}),
        (train_gpu_agent, {"window_jobs": 900}),
    ):
        with pytest.raises(InputError):
            run(checkpoint_dir=CheckpointDir(tmp_path, on_start=on_start), **wrong)
    assert not list(tmp_path.iterdir())


def test_nan_and_infinity_survive_checkpoint(tmp_path):
    checkpoint = SearchCheckpoint({"seed": 0}, 2, CheckpointDir(tmp_path))
    values = np.array([[1.0, np.nan], [np.inf, 0.1 + 0.2]])
    checkpoint.start_scores([0, 1], lambda some: values)
    search = EvolutionStrategy([0.0, 0.0], step=1.0, seed=0)
    assert next(checkpoint.remaining_generations(search, np.random.default_rng(0))) == 1
    checkpoint.path.append(search.mean)
    checkpoint.close(Generation(1, 2, np.nan, -np.inf, 1.0, 0.1))
    again = SearchCheckpoint({"seed": 0}, 2, CheckpointDir(tmp_path, resume=True))
    assert np.array_equal(again.start_scores([0, 1], lambda some: np.zeros((2, 2))), values, equal_nan=True)
    assert str(again.history) == str(checkpoint.history)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "cut off"),
        (lambda text: text.replace('["seed", 0]', '["seed", 1]'), "is damaged: its digest does not match"),
        (lambda text: text.replace('"version": 4', '"version": 3'), "of version 3; this kilowait reads version 4"),
        (lambda text: "[1, 2]", "kilowait did not write it"),
        (lambda text: '{"format": "a list"}', "kilowait did not write it"),
    ],
)
def test_damaged_checkpoint_is_an_error(tmp_path, damage, message):
    SearchCheckpoint({"seed": 0}, 2, CheckpointDir(tmp_path))
    (tmp_path / CHECKPOINT_FILE).write_text(damage((tmp_path / CHECKPOINT_FILE).read_text()))
    with pytest.raises(InputError, match=message):
        SearchCheckpoint({"seed": 0}, 2, CheckpointDir(tmp_path, resume=True))


def with_state(folder, change):
    """Change the state of a checkpoint and write it with a valid digest."""
    state = FORMAT.read(folder / CHECKPOINT_FILE)
    change(state)
    FORMAT.write(folder / CHECKPOINT_FILE, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(history=None), "history is null; it must be a list"),
        (lambda s: s["history"][0].update(number="1"), r"history.0..number is '1'"),
        (lambda s: s["history"][0].update(number=7), "history contradicts the rest"),
        (lambda s: s["path"].append([1.0]), "path contradicts the rest"),
        (lambda s: s.update(path=[[np.nan, 0.0]]), "path or best contradicts the rest"),
        (lambda s: s.update(start_scores=[1.0, [2.0]]), "start_scores contradicts the rest"),
        (lambda s: s.update(best=[[1.0], [1.0, 2.0]]), "best is not a score with its weights"),
        (lambda s: s.update(path=[[1.0, 2.0, 3.0]]), "path has points of 3 numbers, not 2"),
        (lambda s: s.update(best=[1.0, [1.0, 2.0, 3.0]]), "path contradicts the rest"),
        (lambda s: s.pop("search"), "search contradicts the rest"),
        (lambda s: s["search"].update(step=-1.0), "search and windows cannot be restored .step is -1.0"),
        (lambda s: s["search"].update(covariance=[[1.0]]), "covariance is not an array of shape"),
        (lambda s: s["search"].update(generation=10**30), "generation is 1000000000000000000"),
        (lambda s: s["search"].update(random={}), "search and windows cannot be restored"),
        (lambda s: s.update(windows={"state": 3}), "search and windows cannot be restored"),
    ],
)
def test_invalid_state_is_an_error(tmp_path, change, message):
    checkpoint = SearchCheckpoint({"seed": 0}, 2, CheckpointDir(tmp_path))
    search = EvolutionStrategy([0.0, 0.0], step=1.0, seed=0)
    assert next(checkpoint.remaining_generations(search, np.random.default_rng(0))) == 1
    points = search.ask()
    search.tell(points, (points**2).sum(axis=1))
    checkpoint.path.append(search.mean)
    checkpoint.close(Generation(1, 2, 1.0, 1.0, 1.0, 0.1))
    with_state(tmp_path, change)
    with pytest.raises(InputError, match=f"search.json.*({message}).*start again with --force"):
        again = SearchCheckpoint({"seed": 0}, 2, CheckpointDir(tmp_path, resume=True))
        next(again.remaining_generations(EvolutionStrategy([0.0, 0.0], step=1.0, seed=0), np.random.default_rng(0)))


def test_unwritable_and_empty_folders_are_errors(tmp_path):
    with pytest.raises(InputError, match="there is no .*search.json; start a search without --resume"):
        SearchCheckpoint({}, 2, CheckpointDir(tmp_path, resume=True))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        SearchCheckpoint({}, 2, CheckpointDir(tmp_path / "file" / "x"))
