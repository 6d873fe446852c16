"""Replay buffer and sum tree: sampling frequencies, n-step returns, and steps that are never sampled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kilowait.agents.rl.device import DeviceTransfer
from kilowait.agents.rl.replay_buffer import ReplayBuffer, SumTree
from kilowait.errors import InputError

CPU = torch.device("cpu")


def filled_buffer(steps, *, capacity=1000, envs=1, n=1, discount=0.5, ends=(), cuts=(), priority=0.0):
    """A buffer with observation t (environment e: t + 100 e), action t and reward t in step t."""
    buffer = ReplayBuffer(capacity, envs, DeviceTransfer(CPU), n_steps=n, gamma=discount, per_alpha=priority)
    for step in range(steps):
        number = step + 100.0 * np.arange(envs)
        buffer.store_observation({"summary": number[:, None].astype(np.float32), "mask": np.ones((envs, 1), np.int8)})
        flags = [np.full(envs, step in which) for which in (ends, cuts)]
        buffer.store_transition(torch.from_numpy(number).long(), number, *flags)
    return buffer


def rows(buffer, count=4000):
    """The steps that can be sampled, by action: (reward, discount, next observation)."""
    batch = buffer.sample(count, torch.Generator().manual_seed(0))
    assert torch.equal(batch.actions.float(), batch.observation["summary"][:, 0])
    columns = (batch.actions, batch.rewards, batch.discounts, batch.next_observation["summary"][:, 0])
    return {int(a): (r, d, f) for a, r, d, f in zip(*(column.tolist() for column in columns), strict=True)}


def test_sum_tree_samples_by_weight():
    weights = torch.tensor([1.0, 0.0, 3.0, 0.0, 4.0, 2.0])
    tree = SumTree(6)
    tree.set(torch.arange(6), weights)
    assert tree.total == 10
    batch = tree.leaves_at(torch.rand(50_000, generator=torch.Generator().manual_seed(1)) * 10)
    share = torch.bincount(batch, minlength=6) / len(batch)
    assert (share - weights / 10).abs().max() < 0.01
    assert tree.leaves_at(torch.tensor([10.0, 11.0])).tolist() == [5, 5]  # rounding goes to the last one with a weight


def test_sum_tree_updates_sums():
    random = torch.Generator().manual_seed(0)
    tree, plain = SumTree(37), torch.zeros(37, dtype=torch.float64)
    for _ in range(20):
        leaves = torch.randperm(37, generator=random)[:9]
        weights = torch.rand(9, generator=random, dtype=torch.float64)
        tree.set(leaves, weights)
        plain[leaves] = weights
    assert tree.total.item() == pytest.approx(plain.sum().item())
    edges = plain.cumsum(0)
    mass = torch.rand(1000, generator=random, dtype=torch.float64) * plain.sum()
    assert torch.equal(tree.leaves_at(mass), torch.searchsorted(edges, mass, right=True))


def test_one_leaf():
    tree = SumTree(1)
    tree.set(torch.tensor([0]), 2.0)
    assert tree.total == 2 and tree.leaves_at(torch.tensor([1.9])).tolist() == [0]


def test_n_steps_ahead():
    transitions = rows(filled_buffer(6, n=3))
    assert transitions == {0: (0 + 0.5 + 0.5, 0.125, 3.0), 1: (1 + 1 + 0.75, 0.125, 4.0), 2: (2 + 1.5 + 1, 0.125, 5.0)}


def test_termination_stops_n_step_return():
    transitions = rows(filled_buffer(7, n=3, ends=[2]))
    assert {step: transitions[step][:2] for step in (0, 1, 2, 3)} == {
        0: (0 + 0.5 + 0.5, 0.0),
        1: (1 + 1, 0.0),
        2: (2, 0.0),
        3: (3 + 2 + 1.25, 0.125),
    }


def test_truncated_step_is_not_sampled():
    transitions = rows(filled_buffer(7, n=3, cuts=[2]))
    assert set(transitions) == {0, 1, 3}
    assert transitions[0] == (0 + 0.5, 0.25, 2.0)
    assert transitions[1] == (1, 0.5, 2.0)
    assert transitions[3] == (3 + 2 + 1.25, 0.125, 6.0)


def test_oldest_steps_are_overwritten():
    buffer = filled_buffer(25, capacity=20, envs=2, n=2)  # 10 slots
    assert set(rows(buffer)) == {t + 100 * e for t in range(15, 23) for e in range(2)}
    assert all(transitions[2] == step + 2 for step, transitions in rows(buffer).items())
    assert len(buffer) == 16


@pytest.mark.parametrize("priority", [0.0, 0.5, 1.0])
def test_large_errors_are_sampled_more_and_weighted_less(priority):
    buffer = filled_buffer(5, priority=priority)
    buffer.update_priorities(torch.arange(4), torch.tensor([1.0, 4.0, 9.0, 16.0]))
    batch = buffer.sample(40_000, torch.Generator().manual_seed(0))
    expected = torch.tensor([1.0, 4.0, 9.0, 16.0]) ** priority
    expected /= expected.sum()
    share = torch.bincount(batch.actions, minlength=4) / 40_000
    assert (share - expected).abs().max() < 0.005
    weight = {int(a): w for a, w in zip(batch.actions, batch.weights.tolist(), strict=True)}
    assert [weight[a] for a in range(4)] == pytest.approx((expected[0] / expected).tolist(), rel=1e-4)
    # With their weights, all steps count the same: what is estimated is the plain mean.
    mean = (batch.weights * batch.rewards).sum() / batch.weights.sum()
    plain = np.mean([0, 1, 2, 3])
    assert mean.item() == pytest.approx(plain, abs=0.05)


def test_new_steps_have_largest_priority():
    buffer = filled_buffer(3, priority=1.0)
    buffer.update_priorities(torch.tensor([0]), torch.tensor([8.0]))
    buffer.store_observation({"summary": np.array([[3.0]], np.float32), "mask": np.ones((1, 1), np.int8)})
    buffer.store_transition(torch.tensor([3]), np.array([3.0]), np.array([False]), np.array([False]))
    assert buffer.tree.get(torch.arange(3)).tolist() == pytest.approx([8.0, 1.0, 8.0])


@pytest.mark.parametrize("steps", [4, 25])
def test_replay_state_round_trip(steps):
    buffer = filled_buffer(steps, capacity=20, envs=2, n=2, priority=0.5)
    buffer.update_priorities(buffer.sample(3, torch.Generator().manual_seed(3)).indices, torch.tensor([3.0, 0.1, 7.0]))
    again = ReplayBuffer(20, 2, DeviceTransfer(CPU), n_steps=2, gamma=0.5, per_alpha=0.5)
    again.load_state_dict(buffer.state_dict())
    assert torch.equal(again.tree.sums, buffer.tree.sums)
    one, other = (replay.sample(50, torch.Generator().manual_seed(5)) for replay in (buffer, again))
    for name in ("actions", "rewards", "discounts", "weights", "indices"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.next_observation["summary"], other.next_observation["summary"])


def test_too_small_buffer_is_an_error():
    with pytest.raises(
        InputError, match="stores 2 of each of 10 environments; 3-step returns need 5: a buffer_size of 50"
    ):
        ReplayBuffer(20, 10, DeviceTransfer(CPU), n_steps=3)
