"""Differentially private training (DP-SGD) with users as examples, and its privacy accounting.

Each step takes one sequence of jobs per sampled user. M. Abadi et al., "Deep learning with differential privacy", CCS
2016, with users for examples (H. B. McMahan et al., ICLR 2018). Gradients of single users come from `torch.func`;
Opacus clips them, adds the noise and accounts the privacy loss.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from kilowait.errors import InputError, MissingExtraError
from kilowait.synth.log_schema import Floats, Ints
from kilowait.synth.trainer import StatePart, Training, seeded
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork
from kilowait.synth.transformer.train import (
    JOB_TENSORS,
    LIST_TENSORS,
    DatasetTensors,
    SequenceBatch,
    dataset_tensors,
    init_output_layer,
    next_job_loss,
)

if TYPE_CHECKING:
    from opacus.accountants import RDPAccountant
    from opacus.optimizers import DPOptimizer


MIN_NOISE, MAX_NOISE = 0.3, 1000.0


@dataclass(frozen=True)
class PrivacyBudget:
    """Privacy budget at user level: neighboring logs differ in all jobs of one user."""

    epsilon: float
    delta: float
    steps: int
    """Number of training steps."""
    rate: float
    """Probability that a user is sampled in a step."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 100:
            raise InputError(
                f"dp_epsilon is {self.epsilon}; it must be above 0 and at most 100; larger values guarantee nothing"
            )
        if not 0 < self.delta < 1:
            raise InputError(f"dp_delta is {self.delta}; it must be between 0 and 1, and well below 1 / users")


def _opacus() -> tuple[type[RDPAccountant], type[DPOptimizer]]:
    """The accountant and the optimizer of Opacus."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.accountants import RDPAccountant
            from opacus.optimizers import DPOptimizer
    except ImportError:
        raise MissingExtraError("opacus", "private") from None
    return RDPAccountant, DPOptimizer


def spent_epsilon(history: list[tuple[float, float, int]], delta: float) -> float:
    """Epsilon of a history of Gaussian mechanisms: noise over sensitivity, sampling rate, number of steps."""
    rdp_accountant = _opacus()[0]()
    _set_history(rdp_accountant, history)
    with warnings.catch_warnings():
        # Opacus warns if the largest order is optimal; the bound is still valid.
        warnings.simplefilter("ignore")
        return float(rdp_accountant.get_epsilon(delta))


def noise_multiplier(budget: PrivacyBudget) -> float:
    """The smallest noise multiplier, to one per cent, for which one release of counts and one training stay within
    the budget."""

    def epsilon(noise: float) -> float:
        return spent_epsilon([(noise, 1.0, 1), (noise, budget.rate, budget.steps)], budget.delta)

    low = high = MIN_NOISE
    while epsilon(high) > budget.epsilon:
        low, high = high, 2 * high
        if high > MAX_NOISE:
            raise InputError(
                f"dp_epsilon {budget.epsilon:g} with dp_delta {budget.delta:g} needs a noise multiplier above "
                f"{MAX_NOISE:g}; use a larger value"
            )
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(middle) <= budget.epsilon else (middle, high)
    return high


# -- training -------------------------------------------------------------------------------------


History = list[tuple[float, float, int]]

SEQUENCE_JOBS = 64
"""Maximum jobs of a user in a step."""
CLIPPING_NORM = 1.0
"""Clipping norm of a user's gradient."""
LEARNING_RATE = 4e-3
REPORT_EVERY, CHECKPOINT_EVERY = 10, 50
"""Steps between progress reports, and between checkpoints."""


@dataclass(frozen=True)
class PrivateDataset:
    """Training data and public data."""

    calendar: Calendar
    """Calendar of the log without job content."""
    codes: Ints
    """Codes of its jobs, sorted by user."""
    user: Ints
    shape: NetworkShape
    counts: list[Floats]
    """Frequency of each code of each column, from noisy counts."""
    users: float
    """Approximate number of users, from noisy counts."""


class _SequenceLoss(nn.Module):
    """The loss of one sequence, as a module for functional calls."""

    def __init__(self, network: TransformerNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, *parts: Tensor) -> Tensor:
        """Loss of the parts of a `SequenceBatch`."""
        return next_job_loss(self.network, SequenceBatch(*parts))


def private_train(
    dataset: PrivateDataset, budget: PrivacyBudget, noise: float, secret_seeds: list[int], training: Training
) -> tuple[TransformerNetwork, History]:
    """Train a network, and return it with the privacy mechanisms used.

    Args:
        dataset: training data.
        budget: steps and sampling rate of users.
        noise: deviation of the noise in units of `CLIPPING_NORM`.
        secret_seeds: random generators of the noise and of the user sampling; stored only in checkpoints.
        training: seed of the initial weights, device and checkpoints.
    """
    accountant_type, optimizer_type = _opacus()
    device, progress = training.device, training.progress
    with seeded(training.seed, device):
        network = TransformerNetwork(dataset.shape)
        init_output_layer(network, [1000.0 * shares for shares in dataset.counts])
        for table in (network.share, network.level):
            table.weight.requires_grad_(False)  # frequent-job lists are empty
        network = network.to(device)
        module = _SequenceLoss(network)
        tensors = dataset_tensors(dataset.calendar, dataset.codes, dataset.shape, device)
        user_ranges = _user_ranges(dataset.user)
        user_rng = np.random.default_rng([*secret_seeds, 1])
        noise_generator = torch.Generator(device).manual_seed(
            int(np.random.default_rng([*secret_seeds, 2]).integers(2**62))
        )
        torch.manual_seed(int(np.random.default_rng([*secret_seeds, 3]).integers(2**62)))
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = optimizer_type(
            torch.optim.Adam(parameters, lr=LEARNING_RATE),
            noise_multiplier=noise,
            max_grad_norm=CLIPPING_NORM,
            expected_batch_size=max(1.0, budget.rate * dataset.users),
            generator=noise_generator,
        )
        rdp_accountant = accountant_type()
        optimizer.attach_step_hook(rdp_accountant.get_optimizer_hook_fn(sample_rate=budget.rate))
        parts = {
            "secret": StatePart(lambda: secret_seeds, lambda seeds: None),
            "network": network,
            "optimizer": optimizer.original_optimizer,
            "history": StatePart(lambda: _history(rdp_accountant), partial(_set_history, rdp_accountant)),
            "choice": StatePart(
                lambda: user_rng.bit_generator.state, partial(setattr, user_rng.bit_generator, "state")
            ),
            "noises": StatePart(noise_generator.get_state, noise_generator.set_state),
        }
        for step in training.steps(budget.steps, parts, every=CHECKPOINT_EVERY):
            rows = _sample_users(user_ranges, budget.rate, user_rng)
            _gradients(module, tensors, rows, user_ranges)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % REPORT_EVERY == 0:
                progress("private training", (step + 1) / budget.steps)
    progress("private training", 1.0)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    return network.cpu().eval(), _history(rdp_accountant)


def _history(rdp_accountant: RDPAccountant) -> History:
    """Noise, sampling rate and number of steps of the mechanisms so far."""
    return [(float(noise), float(rate), int(steps)) for noise, rate, steps in rdp_accountant.history]


def _set_history(rdp_accountant: RDPAccountant, history: History) -> None:
    rdp_accountant.history = [(float(noise), float(rate), int(steps)) for noise, rate, steps in history]


def _user_ranges(user: Ints) -> Ints:
    """First row of each user's jobs, and one past the last."""
    starts = np.flatnonzero(np.append(True, user[1:] != user[:-1]))
    return np.column_stack([starts, np.append(starts[1:], len(user))])


def _sample_users(user_ranges: Ints, rate: float, rng: np.random.Generator) -> Ints:
    """Poisson sample of users, and the start of a sequence of their jobs."""
    users = np.flatnonzero(rng.random(len(user_ranges)) < rate)
    spare = np.maximum(user_ranges[users, 1] - user_ranges[users, 0] - SEQUENCE_JOBS, 0)
    begin = user_ranges[users, 0] + np.floor(rng.random(len(users)) * (spare + 1)).astype(np.int64)
    return np.column_stack([users, begin])


def _gradients(module: _SequenceLoss, tensors: DatasetTensors, sampled: Ints, user_ranges: Ints) -> None:
    """Set the per-user gradients of the sampled users on each parameter."""
    trainable = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    if not len(sampled):
        for parameter in trainable.values():
            parameter.grad_sample = torch.zeros((0, *parameter.shape), device=parameter.device)  # type: ignore[attr-defined]
        return
    users, begin = sampled.T
    offset = np.arange(SEQUENCE_JOBS)
    rows = begin[:, None] + offset
    exists = rows < user_ranges[users, 1][:, None]
    # The first quarter of a sequence that starts amid a user's jobs has too little context.
    counted = exists & ((offset >= SEQUENCE_JOBS // 4) | (begin == user_ranges[users, 0])[:, None])
    device = tensors.codes.device
    row_indices = torch.as_tensor(np.minimum(rows, user_ranges[users, 1][:, None] - 1), device=device)
    per_user = {
        **{name: getattr(tensors, name)[row_indices] for name in JOB_TENSORS},
        "user": torch.as_tensor(np.where(exists, 0, -1), device=device),
        "counted": torch.as_tensor(counted, device=device),
        "list_index": torch.zeros_like(row_indices),
    }
    shared = {name: getattr(tensors, name)[:1] for name in LIST_TENSORS}
    order = [item.name for item in fields(SequenceBatch)]
    buffers = {name: parameter for name, parameter in module.named_parameters() if not parameter.requires_grad}

    def sequence_loss(parameters: dict[str, Tensor], *parts: Tensor) -> Tensor:
        inputs = [part if name in shared else part[None] for name, part in zip(order, parts, strict=True)]
        return functional_call(module, {**parameters, **buffers}, tuple(inputs))  # type: ignore[no-any-return]

    per_user_gradients = vmap(
        grad(sequence_loss), in_dims=(None, *(None if name in shared else 0 for name in order)), randomness="different"
    )
    detached = {name: parameter.detach() for name, parameter in trainable.items()}
    gradients = per_user_gradients(detached, *({**per_user, **shared}[name] for name in order))
    for name, parameter in trainable.items():
        parameter.grad_sample = gradients[name]  # type: ignore[attr-defined]
