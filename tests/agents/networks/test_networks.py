"""Properties of every network: the mask is obeyed; padding and the order of the queue have no effect."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kilowait.agents.networks import FEATURE_EXTRACTORS, network, q_network
from kilowait.agents.networks.spec import LoadedSpec, spec_from_dict, spec_to_dict
from kilowait.errors import InputError, UnknownNameError

SPEC = LoadedSpec(("length", "wait_h", "nodes"), ("hour", "load"), slots=6, choices=3, extra=2, graph=True)
ACTIONS = SPEC.slots * SPEC.choices + SPEC.extra


def queues(batch: int = 5, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Queues of 0 to 4 jobs in the first of six slots."""
    random = np.random.default_rng(seed)
    occupied = np.arange(SPEC.slots) < np.arange(batch)[:, None]
    occupied[:, 5] = False
    jobs = random.normal(size=(batch, SPEC.slots, 3)) * occupied[..., None]
    mask = np.concatenate([np.repeat(occupied, SPEC.choices, 1), np.ones((batch, 2))], 1)
    edges = random.integers(0, 8, (batch, SPEC.slots, SPEC.slots))
    edges = (edges | edges.transpose(0, 2, 1)) * occupied[:, :, None] * occupied[:, None, :]
    return {
        "jobs": torch.tensor(jobs, dtype=torch.float32),
        "summary": torch.tensor(random.normal(size=(batch, 2)), dtype=torch.float32),
        "mask": torch.tensor(mask, dtype=torch.int8),
        "edges": torch.tensor(edges, dtype=torch.uint8),
    }


def both(kind):
    return network(SPEC, kind, seed=3, width=16), q_network(SPEC, kind, seed=3, width=16)


@pytest.mark.parametrize("kind", FEATURE_EXTRACTORS)
def test_shapes_mask_and_gradients(kind):
    observation = queues()
    actor, q = both(kind)
    logits, value = actor(observation)
    assert logits.shape == (5, ACTIONS) and value.shape == (5,) and value.isfinite().all()
    for scores in (logits, q(observation), actor.scores(observation), q.scores(observation)):
        assert torch.equal(scores.isfinite(), observation["mask"] != 0)
        assert (scores[observation["mask"] == 0] == -torch.inf).all()
    (logits[observation["mask"] != 0].square().sum() + value.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in actor.parameters())


@pytest.mark.parametrize("kind", FEATURE_EXTRACTORS)
def test_padding_does_not_change_scores(kind):
    """A queue alone, with fewer slots used, is scored as in a batch with longer ones."""
    observation = queues()
    actor, q = both(kind)
    for place in range(5):
        alone = {name: rows[place : place + 1] for name, rows in observation.items()}
        torch.testing.assert_close(actor(alone)[0], actor(observation)[0][place : place + 1])
        torch.testing.assert_close(actor(alone)[1], actor(observation)[1][place : place + 1])
        torch.testing.assert_close(q(alone), q(observation)[place : place + 1])


@pytest.mark.parametrize("kind", FEATURE_EXTRACTORS)
def test_order_of_queue_does_not_change_scores(kind):
    observation = queues()
    actor, _ = both(kind)
    order = torch.tensor([5, 2, 0, 4, 1, 3])
    per_job = observation["mask"][:, : -SPEC.extra].view(5, SPEC.slots, -1)[:, order].flatten(1)
    permuted = {
        "jobs": observation["jobs"][:, order],
        "summary": observation["summary"],
        "mask": torch.cat([per_job, observation["mask"][:, -SPEC.extra :]], 1),
        "edges": observation["edges"][:, order][:, :, order],
    }
    logits, value = actor(observation)
    expected = logits[:, : -SPEC.extra].view(5, SPEC.slots, -1)[:, order].flatten(1)
    result, same = actor(permuted)
    torch.testing.assert_close(result[:, : -SPEC.extra], expected)
    torch.testing.assert_close(result[:, -SPEC.extra :], logits[:, -SPEC.extra :])
    torch.testing.assert_close(same, value)


@pytest.mark.parametrize("kind", FEATURE_EXTRACTORS)
@pytest.mark.parametrize("name", ["jobs", "summary", "edges"])
def test_scores_depend_on_every_input(kind, name):
    observation = queues()
    actor, _ = both(kind)
    other = {**observation, name: queues(seed=1)[name]}
    changed = not torch.allclose(actor(observation)[0][4], actor(other)[0][4])
    assert changed == (name != "edges" or kind == "gat")


def test_kernel_gathered_equals_dense():
    observation = queues()
    body = network(SPEC, "kernel", width=16).body
    jobs, summary = observation["jobs"], body.summary(observation["summary"])
    occupied = (jobs != 0).any(-1)
    gathered, dense = body._gathered(jobs, occupied, summary), body._dense(jobs, occupied, summary)
    torch.testing.assert_close(gathered.pooled, dense.pooled)
    torch.testing.assert_close(gathered.rows, dense.rows.flatten(0, 1)[gathered.positions])


@pytest.mark.parametrize("kind", ["attention", "gat"])
def test_attention_weights_sum_to_1(kind):
    observation = queues()
    body = network(SPEC, kind, width=16, heads=2, depth=2).body
    layers = body.attention(observation)
    assert len(layers) == 2
    for weights in layers:
        assert weights.shape[:2] == (5, 2)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    first = 1 if kind == "attention" else 0  # the summary's token
    empty_slots = layers[0][2, :, :, first + 2 :]  # the third queue has two jobs
    weights_to_empty = empty_slots[:, : first + 2]
    assert (weights_to_empty == 0).all()


def test_mean_allowed_advantage_is_zero():
    observation = queues()
    q = q_network(SPEC, "kernel", width=16)
    _, state = q.outputs(q.body(observation))
    allowed = observation["mask"] != 0
    result = q(observation)
    for row in range(5):
        assert result[row][allowed[row]].mean().item() == pytest.approx(state[row].item(), abs=1e-5)


def test_atoms_give_distributions():
    observation = queues()
    q = q_network(SPEC, "attention", width=16, atoms=11, span=(-5.0, 5.0))
    probabilities = q.log_distribution(observation).exp()
    assert probabilities.shape == (5, ACTIONS, 11)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(5, ACTIONS))
    allowed = observation["mask"] != 0
    torch.testing.assert_close(q(observation)[allowed], (probabilities @ torch.linspace(-5, 5, 11))[allowed])


def test_noise_is_resampled_on_request_and_off_in_evaluation():
    observation, random = queues(), torch.Generator().manual_seed(1)
    q = q_network(SPEC, "kernel", width=16, noisy=True)
    without_noise = q.eval()(observation)
    q.train().sample_noise(random)
    first = q(observation)
    assert torch.equal(first, q(observation)) and not torch.equal(first, without_noise)
    q.sample_noise(random)
    assert not torch.equal(first, q(observation))
    assert torch.equal(q.eval()(observation), without_noise)


def test_seed_determines_weights_without_global_state():
    before = torch.get_rng_state()
    first, same, other = (network(SPEC, "gat", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    weights = [torch.cat([p.flatten() for p in one.parameters()]) for one in (first, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_spec_round_trip():
    assert spec_from_dict(spec_to_dict(SPEC)) == SPEC


def test_invalid_names_and_sizes_are_errors():
    with pytest.raises(UnknownNameError, match="unknown network 'kernal'; did you mean 'kernel'"):
        network(SPEC, "kernal")
    with pytest.raises(UnknownNameError, match="unknown size 'hieght'"):
        network(SPEC, "kernel", hieght=3)
    with pytest.raises(InputError, match="the width 20 is not divisible by 3 heads; take a multiple of 3"):
        network(SPEC, "kernel", width=20, heads=3)
    with pytest.raises(InputError, match="each must be at least 1"):
        network(SPEC, "kernel", depth=0)
    flat = LoadedSpec(("length",), ("hour",), 4, 1, 0, graph=False)
    with pytest.raises(InputError, match="'gat' needs edges.*graph=True"):
        network(flat, "gat")
