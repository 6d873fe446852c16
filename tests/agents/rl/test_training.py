"""RL algorithms on the two-job environment: they find the known optimum and resume exactly."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from kilowait.agents import (
    A2CSettings,
    D3QNSettings,
    NetworkSizes,
    PPOSettings,
    SACSettings,
    TrainingError,
    load_network,
    train_a2c,
    train_d3qn,
    train_ppo,
    train_sac,
)
from kilowait.agents.rl.training_state import FORMAT
from kilowait.errors import InputError
from tests.agents.support.two_job_env import Spec, TwoJobs, excess

SMALL = NetworkSizes(width=32)
TINY = NetworkSizes(width=8, depth=1, heads=2)
PPO = PPOSettings(total_timesteps=30_000, n_steps=16, n_minibatches=4, learning_rate=2e-3, sizes=SMALL)
OFF_POLICY = {"total_timesteps": 16_000, "learning_starts": 1000, "learning_rate": 2e-3, "sizes": SMALL}
SOLVED = {
    "ppo": (train_ppo, PPO),
    "ppo, attention": (train_ppo, replace(PPO, total_timesteps=20_000, network="attention")),
    "ppo, gat": (train_ppo, replace(PPO, total_timesteps=20_000, network="gat")),
    "ppo, bf16": (train_ppo, replace(PPO, precision="bf16")),
    "a2c": (train_a2c, A2CSettings(total_timesteps=60_000, n_steps=8, learning_rate=3e-3, sizes=SMALL)),
    "d3qn": (train_d3qn, D3QNSettings(target_update_interval=100, **OFF_POLICY)),
    "rainbow": (
        train_d3qn,
        D3QNSettings(target_update_interval=100, noisy=True, n_atoms=21, v_range=(-5.0, 2.0), **OFF_POLICY),
    ),
    "sac": (train_sac, SACSettings(tau=0.05, **OFF_POLICY)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVED)
def test_algorithm_finds_optimal_policy(name):
    train, settings = SOLVED[name]
    result = train(TwoJobs(64), settings, seed=0)
    assert excess(result.network) == 0.0
    assert result.settings == settings
    last = result.history[-1]
    assert last.number == last.of == len(result.history)
    assert last.steps_per_s > 0 and last.mean_return > result.history[0].mean_return
    assert last.metric == -last.mean_return


def test_untrained_network_is_not_optimal():
    """Check that the test above can fail."""
    result = train_ppo(TwoJobs(8), replace(PPO, total_timesteps=1, learning_rate=1e-9), seed=0)
    assert excess(result.network) > 0.5


@pytest.mark.slow
def test_constraint_holds_at_the_cost_of_reward():
    """Shortest first is now a cost, allowed in one episode of ten."""
    settings = replace(PPO, total_timesteps=60_000, cost="short_first", cost_limit=0.1, cost_rate=0.02)
    result = train_ppo(TwoJobs(64), settings, seed=0)
    late = [one.losses["cost"] for one in result.history[-10:]]
    assert np.mean(late) <= 0.1 < result.history[0].losses["cost"]
    assert result.history[-1].losses["multiplier"] > 0
    assert excess(result.network) > 1.0


QUICK = {
    "ppo": (train_ppo, PPOSettings(n_steps=4, n_minibatches=2, n_epochs=2, cost="short_first", sizes=TINY)),
    "ppo, target_kl": (train_ppo, PPOSettings(n_steps=4, n_minibatches=2, target_kl=1e-4, sizes=TINY)),
    "ppo, attention": (train_ppo, PPOSettings(n_steps=4, n_minibatches=2, network="attention", sizes=TINY)),
    "ppo, gat": (train_ppo, PPOSettings(n_steps=4, n_minibatches=2, network="gat", sizes=TINY)),
    "a2c": (train_a2c, A2CSettings(n_steps=4, sizes=TINY)),
    "d3qn": (
        train_d3qn,
        D3QNSettings(
            train_freq=4,
            gradient_steps=2,
            batch_size=16,
            buffer_size=80,
            learning_starts=16,
            target_update_interval=3,
            sizes=TINY,
        ),
    ),
    "rainbow": (
        train_d3qn,
        D3QNSettings(
            train_freq=4,
            gradient_steps=2,
            batch_size=16,
            buffer_size=200,
            learning_starts=16,
            target_update_interval=3,
            noisy=True,
            n_atoms=5,
            sizes=TINY,
        ),
    ),
    "sac": (
        train_sac,
        SACSettings(train_freq=4, gradient_steps=2, batch_size=16, buffer_size=80, learning_starts=16, sizes=TINY),
    ),
}
ENVS, UPDATES = 4, 6


def quick(name, **changes):
    """Six updates; episodes are truncated early, so that every rollout contains truncations."""
    train, settings = QUICK[name]
    defaults = {"total_timesteps": UPDATES * 4 * ENVS, "checkpoint_every": 1, "validate_every": 2}
    settings = replace(settings, **{**defaults, **changes})

    def run(**arguments):
        return train(TwoJobs(ENVS, horizon=3), settings, seed=7, **arguments)

    return run


def weights(result) -> bytes:
    return b"".join(value.numpy().tobytes() for value in result.network.state_dict().values())


def digest(folder) -> str:
    """Digest of all tensors and arrays of the last checkpoint: optimizers, random states, environments, replay …"""
    with safe_open(folder / "last.safetensors", framework="np") as file:
        results: str = json.loads(file.metadata()["kilowait"])["digest"]
    return results


class Stopped(Exception):
    pass


def stop_after(number):
    def progress(update):
        if update.number == number:
            raise Stopped

    return progress


def validation_score(network) -> float:
    """Deterministic and not monotone, so that the best and the last network differ."""
    return float(sum(p.detach().double().sum() for p in network.parameters())) % 1.0


@pytest.mark.parametrize("name", QUICK)
def test_resumed_training_equals_uninterrupted(name, tmp_path):
    uninterrupted = quick(name)(checkpoint_dir=tmp_path / "whole")
    for stopped in range(1, UPDATES):
        folder = tmp_path / str(stopped)
        with pytest.raises(Stopped):
            quick(name)(checkpoint_dir=folder, progress=stop_after(stopped))
        resumed = quick(name)(checkpoint_dir=folder, resume=folder)
        assert weights(resumed) == weights(uninterrupted), stopped
        without_rates = [replace(one, steps_per_s=0.0) for one in resumed.history]
        assert repr(without_rates) == repr([replace(one, steps_per_s=0.0) for one in uninterrupted.history])
        # Not only the weights: all state that the next update depends on.
        assert digest(folder) == digest(tmp_path / "whole")


@pytest.mark.parametrize("name", ["ppo", "d3qn"])
def test_resume_from_checkpoint_older_than_stop(name, tmp_path):
    """The checkpoint is older than the stop, and the best network is older than the checkpoint."""
    uninterrupted = quick(name, checkpoint_every=2)(validate=validation_score)
    with pytest.raises(Stopped):
        quick(name, checkpoint_every=2)(validate=validation_score, checkpoint_dir=tmp_path, progress=stop_after(5))
    resumed = quick(name, checkpoint_every=2)(validate=validation_score, checkpoint_dir=tmp_path, resume=tmp_path)
    assert weights(resumed) == weights(uninterrupted)
    validations = [one.validation for one in uninterrupted.history if not math.isnan(one.validation)]
    assert len(validations) == 3 and uninterrupted.history[-1].best == min(validations) == validation_score(
        uninterrupted.network
    )
    loaded = load_network(tmp_path / "agent.pt", Spec())
    assert validation_score(loaded) == validation_score(uninterrupted.network)
    assert loaded.provenance["algorithm"] == name and loaded.provenance["settings"]["sizes"]["width"] == 8


def test_first_update_writes_checkpoint(tmp_path):
    with pytest.raises(Stopped):
        quick("sac", checkpoint_every=500)(checkpoint_dir=tmp_path, progress=stop_after(3))
    resumed = quick("sac", checkpoint_every=500)(checkpoint_dir=tmp_path, resume=tmp_path)
    assert weights(resumed) == weights(quick("sac", checkpoint_every=500)(checkpoint_dir=tmp_path / "whole"))


def test_seed_determines_result():
    train, settings = QUICK["ppo"]
    settings = replace(settings, total_timesteps=64)
    results = [weights(train(TwoJobs(ENVS), settings, seed=seed, threads=1)) for seed in (0, 0, 1)]
    assert results[0] == results[1] != results[2]


def test_global_random_state_is_unchanged(tmp_path):
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    for name in QUICK:
        quick(name, total_timesteps=64)()
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numbers).all()  # noqa: NPY002


def test_patience_stops_and_best_network_is_returned():
    values = iter([5.0, 3.0, 4.0, 3.5, 1.0])
    validated_weights = []

    def validate(network):
        validated_weights.append({name: value.clone() for name, value in network.state_dict().items()})
        return next(values)

    result = quick("ppo", validate_every=1, patience=2)(validate=validate)
    assert len(result.history) == 4 and result.history[-1].best == 3.0
    for name, value in result.network.state_dict().items():
        assert torch.equal(value, validated_weights[1][name])


def test_non_finite_loss_stops_and_keeps_last_checkpoint(tmp_path):
    train, settings = QUICK["ppo"]
    settings = replace(settings, total_timesteps=96, checkpoint_every=1, cost=None)
    with pytest.raises(TrainingError) as caught:
        train(TwoJobs(ENVS, broken_after=9), settings, seed=0, checkpoint_dir=tmp_path)
    message = str(caught.value)
    assert message.startswith("update 3: policy is nan; value is nan. the last good checkpoint is ")
    assert f"{tmp_path}/last.safetensors (update 2)" in message and "lower the learning rate" in message
    assert FORMAT.read(tmp_path / "last.safetensors")["number"] == 2
    with pytest.raises(TrainingError, match=r"update 1: .*no checkpoint was written"):
        train(TwoJobs(ENVS, broken_after=1), settings, seed=0)


def test_resume_with_other_settings_is_an_error(tmp_path):
    quick("ppo", total_timesteps=32)(checkpoint_dir=tmp_path)
    with pytest.raises(InputError, match="was started with algorithm ppo, not a2c"):
        quick("a2c")(resume=tmp_path)
    with pytest.raises(
        InputError,
        match="was started with settings clip_range 0.2, not 0.3; resume with the same value, or train again",
    ):
        quick("ppo", clip_range=0.3)(resume=tmp_path)
    train, settings = QUICK["ppo"]
    with pytest.raises(InputError, match="was started with seed 7, not 8"):
        train(TwoJobs(ENVS), replace(settings, checkpoint_every=1, validate_every=2), seed=8, resume=tmp_path)
    with pytest.raises(InputError, match="was started with envs 4, not 5"):
        train(TwoJobs(5), replace(settings, checkpoint_every=1, validate_every=2), seed=7, resume=tmp_path)
    with pytest.raises(InputError, match="there is no .*nowhere"):
        quick("ppo")(resume=tmp_path / "nowhere")
    wider = TwoJobs(ENVS)
    wider.spec_of_observation = Spec(extra=3)
    with pytest.raises(InputError, match="an environment with extra 1; this one has 3"):
        train(wider, replace(settings, checkpoint_every=1, validate_every=2), seed=7, resume=tmp_path)


def test_resume_with_more_steps(tmp_path):
    quick("ppo", total_timesteps=32)(checkpoint_dir=tmp_path)
    longer = quick("ppo", total_timesteps=64)(resume=tmp_path)
    assert [one.number for one in longer.history] == [1, 2, 3, 4] and longer.history[0].of == 4
    done = quick("ppo", total_timesteps=32)(resume=tmp_path)
    assert len(done.history) == 2


def test_rollout_smaller_than_minibatches_is_an_error():
    with pytest.raises(InputError, match="a rollout of 4 steps cannot be split into 8 minibatches"):
        train_ppo(TwoJobs(1), PPOSettings(n_steps=4), seed=0)
