"""A training is resumed only with the identity it was started with; memory is checked beforehand."""

from dataclasses import replace

import pytest

import kilowait as kw
from kilowait.agents import PPOSettings, SACSettings
from kilowait.agents.rl.training_state import TrainingState
from kilowait.envs.batch_env import DecisionSettings
from kilowait.errors import InputError
from kilowait.experiments.power import PowerTraining
from kilowait.experiments.settings import PowerSettings
from kilowait.experiments.training.linear import BatchTrainer, BatchTraining, PowerAgentTraining, PowerTrainer
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.resume_checks import can_resume, check_can_start, check_memory
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.experiments.training.trainer import TrainingRun

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(700, 32, load=1.0, seed=3)
QUICK = RLTraining(
    total_timesteps=16 * 2 * 2,
    num_envs=2,
    episode_jobs=40,
    queue_window=8,
    windows=2,
    window_jobs=60,
    hyperparameters={"n_steps": 16, "n_minibatches": 2, "n_epochs": 1, "checkpoint_every": 1},
)
OTHER_JOBS = JOBS.with_columns(runtime_s=JOBS["runtime_s"] + 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network") / "x.training"
    train_network(JOBS[:400], JOBS[400:], MACHINE, QUICK, folder=folder)
    return folder


@pytest.mark.parametrize(
    ("jobs", "cluster", "training", "message"),
    [
        (OTHER_JOBS, MACHINE, QUICK, r"training jobs 400 \(digest \w+\), not 400"),
        (JOBS, kw.Cluster.from_nodes(40), QUICK, "machine "),
        (JOBS, MACHINE, replace(QUICK, reward={"wait": 1.0}), "reward None, not .'wait': 1.0"),
        (JOBS, MACHINE, replace(QUICK, objectives=("wait", "sla")), r"objectives \[\], not .*'wait', 'sla'"),
        (JOBS, MACHINE, replace(QUICK, episode_jobs=50), "episode_jobs 40, not 50"),
        (JOBS, MACHINE, replace(QUICK, backfill_order="saf"), "decision setting backfill_order agent, not saf"),
    ],
)
def test_resume_with_other_identity_keeps_checkpoint(folder, jobs, cluster, training, message):
    checkpoint = (folder / "last.safetensors").read_bytes()
    with pytest.raises(InputError, match=message):
        train_network(
            jobs[:400], jobs[400:], cluster, replace(training, total_timesteps=200), folder=folder, resume=True
        )
    assert (folder / "last.safetensors").read_bytes() == checkpoint


@pytest.mark.parametrize(
    "invalid", [{"device": "cuda:9"}, {"device": "mps"}, {"expert": "unknown"}, {"queue_window": 10**9}]
)
def test_invalid_new_training_keeps_old_one(folder, invalid):
    checkpoint = (folder / "last.safetensors").read_bytes()
    with pytest.raises((InputError, LookupError, MemoryError)):
        train_network(JOBS[:400], JOBS[400:], MACHINE, replace(QUICK, **invalid), folder=folder)
    assert (folder / "last.safetensors").read_bytes() == checkpoint


class Killed(Exception):
    pass


def kill(*_, **__):
    raise Killed


SLOW = replace(QUICK, hyperparameters={**QUICK.hyperparameters, "checkpoint_every": 10}, total_timesteps=16 * 2 * 5)


def test_new_training_removes_old_checkpoints(tmp_path, monkeypatch):
    folder = tmp_path / "x.training"
    train_network(JOBS[:400], JOBS[400:], MACHINE, QUICK, folder=folder)
    assert can_resume(folder)
    monkeypatch.setattr(TrainingState, "end_update", kill)
    with pytest.raises(Killed):
        train_network(JOBS[:400], JOBS[400:], MACHINE, SLOW, folder=folder)
    assert not can_resume(folder)


def test_restarted_training_is_resumed(tmp_path):
    folder = tmp_path / "x.training"
    train_network(JOBS[:400], JOBS[400:], MACHINE, QUICK, folder=folder)
    with pytest.raises(Killed):
        train_network(JOBS[:400], JOBS[400:], MACHINE, SLOW, folder=folder, progress=kill)
    updates = []
    train_network(JOBS[:400], JOBS[400:], MACHINE, SLOW, folder=folder, resume=True, progress=updates.append)
    assert [update.number for update in updates] == [2, 3, 4, 5]


def test_memory_check_names_size():
    spec = DecisionSettings(queue_window=1000, graph=True).observation_spec
    observation_bytes = 4 * (1000 * 10 + 11) + 1000 + 1000 * 1000
    check_memory(spec, envs=10, stored=100, settings=PPOSettings(), free=observation_bytes * 120)
    with pytest.raises(
        InputError,
        match=r"10 environments with a queue window of 1,000.*smaller --queue-window or a smaller --num-envs$",
    ):
        check_memory(spec, envs=10, stored=100, settings=PPOSettings(), free=observation_bytes * 120 - 1)
    with pytest.raises(InputError, match="smaller buffer_size"):
        check_memory(spec, envs=10, stored=100, settings=SACSettings(), free=1)
    check_memory(spec, envs=10, stored=100, settings=SACSettings())


POWER_MODEL = """
name = "own"

[facility]
fixed_w = 0
source = "a test"
estimate = true

[facility.cooling]
kind = "constant-pue"
pue = 1.3
source = "a test"
estimate = true

[[group]]
name = "nodes"
nodes = 32

[[group.component]]
name = "CPU"
kind = "cpu"
count = 2
idle_w = 40
max_w = {}
source = "maker"
estimate = false

[group.sleep]
sleep_w = 5
to_sleep_s = 10
to_sleep_w = 100
wake_s = 100
wake_w = 150
source = "measured"
estimate = false
"""
SEARCH = BatchTraining(generations=1, population=4, windows=1, window_jobs=60)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched") / "x.training"
    BatchTrainer(SEARCH).train(JOBS, MACHINE, TrainingRun("a log", folder))
    return folder


def power_search(jobs, cluster, search, power_controls="sleep=timeout:600", power="taurus", **options):
    power_training = PowerTraining.of(PowerSettings(power), power_controls, jobs, cluster)
    settings = {name: getattr(search, name) for name in ("seed", "generations", "population", "windows", "window_jobs")}
    trainer = PowerTrainer(PowerAgentTraining(**settings), power_training)
    return trainer.train(jobs, cluster, TrainingRun("a log", **options))


@pytest.mark.parametrize(
    ("jobs", "cluster", "search", "message"),
    [
        (OTHER_JOBS, MACHINE, SEARCH, r"training jobs 420 \(digest \w+\), not 420"),
        (JOBS[:600], MACHINE, SEARCH, "training jobs 420 .*, not 360"),
        (JOBS, kw.Cluster.from_nodes(40), SEARCH, "machine .*resume with the same value, or start again with --force"),
        (JOBS, MACHINE, replace(SEARCH, seed=3), "seed 0, not 3"),
    ],
)
def test_search_with_other_identity_is_not_resumed(searched, jobs, cluster, search, message):
    checkpoint = (searched / "search.json").read_bytes()
    with pytest.raises(InputError, match=message):
        BatchTrainer(search).train(jobs, cluster, TrainingRun("a log", searched, resume=True))
    assert (searched / "search.json").read_bytes() == checkpoint


def test_power_search_with_other_power_is_not_resumed(tmp_path):
    folder = tmp_path / "x.training"
    power_search(JOBS, MACHINE, SEARCH, folder=folder)
    with pytest.raises(InputError, match="power_controls sleep=timeout:600, not sleep=timeout:60"):
        power_search(JOBS, MACHINE, SEARCH, power_controls="sleep=timeout:60", folder=folder, resume=True)
    model = tmp_path / "own.toml"
    model.write_text(POWER_MODEL.format(200))
    power_search(JOBS, MACHINE, SEARCH, power=str(model), folder=folder / "own")
    model.write_text(POWER_MODEL.format(210))
    with pytest.raises(InputError, match="content of power and signals digest .*, not digest"):
        power_search(JOBS, MACHINE, SEARCH, power=str(model), folder=folder / "own", resume=True)


def test_search_and_network_do_not_resume_each_other(searched, folder):
    with pytest.raises(InputError, match=r"environment none \(cma-es .*, not kilowait/Batch-v0"):
        train_network(JOBS[:400], JOBS[400:], MACHINE, QUICK, folder=searched, resume=True)
    with pytest.raises(InputError, match=r"environment kilowait/Batch-v0, not none \(cma-es"):
        BatchTrainer(SEARCH).train(JOBS, MACHINE, TrainingRun("a log", folder, resume=True))


def test_existing_and_missing_trainings_are_errors(searched, tmp_path):
    with pytest.raises(InputError, match="resume it with --resume, or start again with --force"):
        check_can_start(searched, resume=False, force=False)
    with pytest.raises(InputError, match="contains no training to resume; start one without --resume"):
        check_can_start(tmp_path, resume=True, force=True)
    check_can_start(searched, resume=True, force=False)
    check_can_start(searched, resume=False, force=True)


def test_new_search_removes_files_of_network_training(tmp_path):
    folder = tmp_path / "x.training"
    train_network(JOBS[:400], JOBS[400:], MACHINE, QUICK, folder=folder)
    BatchTrainer(SEARCH).train(JOBS, MACHINE, TrainingRun("a log", folder))
    assert {path.name for path in folder.iterdir() if path.is_file()} == {"identity.json", "search.json"}
