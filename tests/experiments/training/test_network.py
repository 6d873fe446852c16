"""Training of networks on a log, resumable after a crash."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.experiments.training.network import TrainingLogger, train_network
from kilowait.experiments.training.resume_checks import training_folder
from kilowait.experiments.training.rl_settings import RLTraining

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(900, 32, load=1.0, seed=3)
QUICK = RLTraining(
    total_timesteps=16 * 4 * 6,
    num_envs=4,
    episode_jobs=40,
    queue_window=16,
    windows=3,
    window_jobs=60,
    hyperparameters={"n_steps": 16, "n_minibatches": 2, "n_epochs": 1, "validate_every": 2, "checkpoint_every": 2},
)


def trained(folder, training=QUICK, **options):
    return train_network(JOBS[:600], JOBS[600:], MACHINE, training, folder=folder, **options)


def weights(agent):
    return {name: tensor.numpy().copy() for name, tensor in agent.network.state_dict().items()}


class Killed(Exception):
    pass


@pytest.mark.parametrize(("algo", "load_curriculum"), [("ppo", 1.0), ("ppo", 0.5), ("d3qn", 1.0)])
def test_resumed_after_kill_equals_uninterrupted(tmp_path, algo, load_curriculum):
    settings = dict(QUICK.hyperparameters) if algo == "ppo" else {
        "train_freq": 16, "gradient_steps": 2, "batch_size": 16, "learning_starts": 64, "buffer_size": 500,
        "validate_every": 2, "checkpoint_every": 2,
    }  # fmt: skip
    training = replace(QUICK, algo=algo, load_curriculum=load_curriculum, hyperparameters=settings)
    uninterrupted, history = trained(tmp_path / "uninterrupted", training)

    def kill(update):
        if update.number == 5:
            raise Killed

    with pytest.raises(Killed):
        trained(tmp_path / "resumed", training, progress=kill)
    updates = []
    resumed, again = trained(tmp_path / "resumed", training, resume=True, progress=updates.append)
    assert [update.number for update in updates] == [5, 6] and len(again) == len(history) == 6
    left, right = weights(uninterrupted), weights(resumed)
    assert all(np.array_equal(left[name], right[name]) for name in left)


def test_saved_agent_runs(tmp_path):
    agent, history = trained(tmp_path / "run")
    log = kw.simulate(JOBS[600:], MACHINE, agent, "easy")
    again = kw.load_agent(tmp_path / "run" / "agent.pt")
    assert np.array_equal(log.jobs()["start_s"], kw.simulate(JOBS[600:], MACHINE, again, "easy").jobs()["start_s"])
    assert np.array_equal(
        log.jobs()["start_s"],
        kw.simulate(JOBS[600:], MACHINE, kw.load_agent(tmp_path / "run"), "easy").jobs()["start_s"],
    )
    assert history[-1].best <= history[1].validation  # the best of what was validated


def test_metrics_are_logged_to_tensorboard(tmp_path):
    logger = TrainingLogger(tmp_path / "curves")
    trained(tmp_path / "run", progress=logger)
    logger.close()
    assert any(file.stat().st_size > 0 for file in (tmp_path / "curves").iterdir())


def test_invalid_settings_are_errors(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'ppo'"):
        RLTraining(algo="pppo")
    with pytest.raises(UnknownNameError, match="learning_rate"):
        RLTraining(hyperparameters={"learnin_rate": 1}).algorithm_settings()
    with pytest.raises(InputError, match="takes? shorter|shorter"):
        trained(tmp_path, replace(QUICK, episode_jobs=700))
    assert training_folder("a/b").as_posix() == "a/b.training"


def test_multiplier_rises_while_constraint_is_violated(tmp_path):
    training = replace(QUICK, constraint={"sla": 0.0}, sla_s=1.0)
    _, history = trained(tmp_path / "run", training)
    multipliers = [update.losses["multiplier"] for update in history]
    assert multipliers[0] < multipliers[-1] and any(update.losses.get("cost", 0) > 0 for update in history)
    with pytest.raises(InputError, match="only ppo supports"):
        replace(QUICK, algo="sac", hyperparameters={}, constraint={"sla": 0.1})


def test_missing_weights_and_biases_is_named_without_an_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match="this needs wandb, which is not installed: pip install wandb$"):
        TrainingLogger(tmp_path, wandb="project")
