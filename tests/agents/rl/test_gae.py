"""Advantages and n-step returns against values computed by hand."""

from __future__ import annotations

import pytest
import torch

from kilowait.agents.rl.rollout_buffer import generalized_advantages, n_step_returns

REWARDS = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
VALUES = torch.tensor([[10.0], [20.0], [30.0], [40.0]])
AFTER = torch.tensor([[20.0], [30.0], [40.0], [50.0]])
NO = torch.zeros(4, 1, dtype=torch.bool)
RANDOM = torch.Generator().manual_seed(0)


def at(*steps: int) -> torch.Tensor:
    flags = NO.clone()
    flags[list(steps)] = True
    return flags


def advantages(terminated=NO, truncated=NO, *, after=AFTER, trace=0.5):
    result = generalized_advantages(REWARDS, VALUES, after, terminated, truncated, gamma=0.9, gae_lambda=trace)
    return result.flatten().tolist()


def test_gae_values():
    d = [1 + 18 - 10, 2 + 27 - 20, 3 + 36 - 30, 4 + 45 - 40]  # TD errors; 0.9 * 0.5 of the next one is added
    a3 = d[3]
    a2 = d[2] + 0.45 * a3
    a1 = d[1] + 0.45 * a2
    assert advantages() == pytest.approx([d[0] + 0.45 * a1, a1, a2, a3])
    assert advantages(trace=0.0) == pytest.approx(d)


def test_termination_cuts_and_has_value_zero():
    result = advantages(terminated=at(1))
    assert result[1] == pytest.approx(2 - 20)
    assert result[0] == pytest.approx(9 + 0.45 * (2 - 20))
    assert result[2:] == pytest.approx(advantages()[2:])


def test_truncation_bootstraps_from_last_state():
    after = AFTER.clone()
    after[1] = 7.0  # of the final observation
    result = advantages(truncated=at(1), after=after)
    assert result[1] == pytest.approx(2 + 0.9 * 7 - 20)
    assert result[0] == pytest.approx(9 + 0.45 * result[1])


def test_values_after_termination_are_ignored():
    after = AFTER.clone()
    after[1] = torch.nan
    assert advantages(terminated=at(1), after=after) == pytest.approx(advantages(terminated=at(1)))


def returns(n, terminated=NO, truncated=NO):
    return n_step_returns(REWARDS, AFTER, terminated, truncated, gamma=0.5, n_steps=n).flatten().tolist()


def test_n_step_values():
    assert returns(1) == [1 + 10, 2 + 15, 3 + 20, 4 + 25]
    assert returns(2) == [1 + 1 + 7.5, 2 + 1.5 + 10, 3 + 2 + 12.5, 29]
    assert returns(4) == returns(9) == [1 + 1 + 0.75 + 0.5 + 50 / 16, 2 + 1.5 + 1 + 6.25, 17.5, 29]


def test_n_step_returns_stop_at_episode_ends():
    assert returns(3, terminated=at(1)) == [1 + 1, 2, 3 + 2 + 12.5, 29]
    assert returns(3, truncated=at(1)) == [1 + 1 + 7.5, 2 + 15, 3 + 2 + 12.5, 29]


def test_full_returns_equal_gae_with_lambda_one():
    rewards, values, after = torch.randn(3, 20, 5, generator=RANDOM)
    terminated, truncated = torch.rand(2, 20, 5, generator=RANDOM) < 0.1
    # Between ends of episodes both must use the values of the same states.
    after[:-1] = torch.where((terminated | truncated)[:-1], after[:-1], values[1:])
    full = generalized_advantages(rewards, values, after, terminated, truncated, gamma=0.97, gae_lambda=1.0)
    long = n_step_returns(rewards, after, terminated, truncated, gamma=0.97, n_steps=20)
    torch.testing.assert_close(full + values, long)
