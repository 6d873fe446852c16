"""Training of linear agents with synthetic jobs."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import BatchObjective, BatchSearchSettings, CheckpointDir, train_linear_agent
from kilowait.agents.evolution.batch import WindowSampler
from kilowait.agents.training_data import SyntheticMix
from kilowait.rng import stream

CLUSTER = kw.Cluster.from_nodes(32)
SMALL = {"generations": 4, "population": 4, "windows": 2, "window_jobs": 100, "seed": 3}


def with_users(jobs, users):
    return jobs.with_columns(user=np.arange(len(jobs)) % users)


REAL = with_users(kw.lublin(900, 32, load=1.0, seed=1), 5)
SYNTHETIC = with_users(kw.lublin(400, 32, load=1.1, seed=2), 3)
OTHER = with_users(kw.lublin(600, 32, load=0.9, seed=5), 5)


def trained_agent(jobs=REAL[:600], mixture=None, progress=None, checkpoint_dir=None, **more):
    settings = BatchSearchSettings(**{**SMALL, **more})
    objective = BatchObjective(jobs, REAL[600:], CLUSTER, settings, synthetic_mix=mixture)
    return train_linear_agent(objective, progress=progress, checkpoint_dir=checkpoint_dir)[0]


def test_seed_determines_agent_and_synthetic_jobs_change_it():
    mixed = trained_agent(mixture=SyntheticMix((SYNTHETIC,), 0.5)).provenance
    assert mixed == trained_agent(mixture=SyntheticMix((SYNTHETIC,), 0.5), threads=2).provenance
    assert mixed["averaged_move"] != trained_agent().provenance["averaged_move"]
    assert mixed["synthetic_share"] == 0.5 and mixed["generated_jobs"] == [400]


def test_share_1_ignores_log_training_jobs():
    alone = SyntheticMix((SYNTHETIC,), 1.0)
    one, other = trained_agent(mixture=alone), trained_agent(OTHER, mixture=alone)
    assert one.weights.tolist() == other.weights.tolist()
    assert one.user_history.to_dict() == other.user_history.to_dict()
    assert set(one.user_history.users) == {"0", "1", "2", "3", "4"}  # of the validation jobs, which are real
    assert one.provenance["trained_on_jobs"] == 0


def test_users_of_synthetic_jobs_are_separate():
    alone = WindowSampler(REAL[:600], SyntheticMix((SYNTHETIC,), 1.0), CLUSTER, 100, np.inf, until_s=1e6)
    assert not alone.final_history.users and alone.final_history.all_users[:, 0].sum() > 0
    mixed = WindowSampler(REAL[:600], SyntheticMix((SYNTHETIC,), 0.5), CLUSTER, 100, np.inf, until_s=1e6)
    real = WindowSampler(REAL[:600], None, CLUSTER, 100, np.inf, until_s=1e6)
    assert mixed.history_with(REAL[600:]).to_dict() == real.history_with(REAL[600:]).to_dict()


def is_synthetic(window):
    """Whether a window applies to synthetic jobs."""
    return bool(np.isin(window.jobs["runtime_s"], SYNTHETIC["runtime_s"]).all())


def test_synthetic_first_samples_synthetic_then_log_windows():
    mixture = SyntheticMix((SYNTHETIC,), 0.5, "synthetic-first")
    sampler = WindowSampler(REAL[:600], mixture, CLUSTER, 100, np.inf, until_s=1e6)
    random = stream(0, "test")
    for done, all_synthetic in ((0.0, True), (0.49, True), (0.5, False), (0.9, False)):
        windows = sampler.sample(20, random, mixture.share_at(done))
        assert {is_synthetic(window) for window in windows} == {all_synthetic}
    assert {is_synthetic(window) for window in sampler.sample(40, random)} == {True, False}


class Killed(Exception):
    pass


@pytest.mark.parametrize("curriculum", ["mixed", "synthetic-first"])
def test_resumed_after_kill_equals_uninterrupted(tmp_path, curriculum):
    mixture = SyntheticMix((SYNTHETIC,), 0.5, curriculum)

    def kill(done):
        if done.number == 2:
            raise Killed

    with pytest.raises(Killed):
        trained_agent(mixture=mixture, checkpoint_dir=CheckpointDir(tmp_path), progress=kill)
    resumed = trained_agent(mixture=mixture, checkpoint_dir=CheckpointDir(tmp_path, resume=True))
    uninterrupted = trained_agent(mixture=mixture)
    assert resumed.weights.tolist() == uninterrupted.weights.tolist() and resumed.provenance == uninterrupted.provenance
    with pytest.raises(kw.errors.InputError, match="was started with synthetic_mix"):
        trained_agent(
            mixture=SyntheticMix((SYNTHETIC,), 0.25, curriculum), checkpoint_dir=CheckpointDir(tmp_path, resume=True)
        )
