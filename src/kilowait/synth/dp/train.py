"""Differentially private training (DP-SGD) with users as examples: one sequence of jobs per sampled user and step.

M. Abadi et al., "Deep learning with differential privacy", CCS 2016, with users for examples (H. B. McMahan et al.,
ICLR 2018). Gradients of single users come from `torch.func`; Opacus clips them, adds the noise and accounts the
privacy loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from kilowait.errors import InputError, MissingExtraError
from kilowait.synth.checkpoint import CheckpointStore
from kilowait.synth.dp.accountant import PrivacyBudget, accountant
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.dataset import DatasetTensors, SequenceBatch, dataset_tensors, next_job_loss
from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork
from kilowait.synth.transformer.train import init_output_layer

__all__ = ["PrivateDataset", "private_train"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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
    dataset: PrivateDataset,
    budget: PrivacyBudget,
    noise: float,
    *,
    seed: int,
    secret_seeds: list[int],
    progress: SampleProgress,
    device: torch.device,
    checkpoints: CheckpointStore | None = None,
    state: Mapping[str, Any] | None = None,
) -> tuple[TransformerNetwork, History]:
    """Train a network, and return it with the privacy mechanisms used.

    Args:
        dataset: training data.
        budget: steps and sampling rate of users.
        noise: deviation of the noise in units of `CLIPPING_NORM`.
        seed: of the initial weights.
        secret_seeds: random generators of the noise and of the user sampling; stored only in `checkpoints`.
        progress: progress callback.
        device: training device.
        checkpoints: checkpoint store.
        state: a state to resume from.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.optimizers import DPOptimizer
    except ImportError:
        raise MissingExtraError("opacus", "private") from None
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
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
        optimizer = DPOptimizer(
            torch.optim.Adam(parameters, lr=LEARNING_RATE),
            noise_multiplier=noise,
            max_grad_norm=CLIPPING_NORM,
            expected_batch_size=max(1.0, budget.rate * dataset.users),
            generator=noise_generator,
        )
        rdp_accountant = accountant()
        optimizer.attach_step_hook(rdp_accountant.get_optimizer_hook_fn(sample_rate=budget.rate))
        step = 0
        if state is not None:
            step = _restored_step(state, network, optimizer, rdp_accountant, user_rng, noise_generator)
        while step < budget.steps:
            rows = _sample_users(user_ranges, budget.rate, user_rng)
            _gradients(module, tensors, rows, user_ranges)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % REPORT_EVERY == 1:
                progress("private training", step / budget.steps)
            if checkpoints is not None and step % CHECKPOINT_EVERY == 0 and step < budget.steps:
                checkpoints.write(
                    _state(secret_seeds, step, network, optimizer, rdp_accountant, user_rng, noise_generator)
                )
    progress("private training", 1.0)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    return network.cpu().eval(), [(float(a), float(b), int(c)) for a, b, c in rdp_accountant.history]


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
        "codes": tensors.codes[row_indices],
        "previous_codes": tensors.previous_codes[row_indices],
        "conditions": tensors.conditions[row_indices],
        "first": tensors.first[row_indices],
        "in_session": tensors.in_session[row_indices],
        "user": torch.as_tensor(np.where(exists, 0, -1), device=device),
        "counted": torch.as_tensor(counted, device=device),
        "list_index": torch.zeros_like(row_indices),
    }
    shared = {name: getattr(tensors, name)[:1] for name in ("frequent_jobs", "slot_codes", "share", "level")}
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


def _state(
    secret_seeds: list[int],
    step: int,
    network: TransformerNetwork,
    optimizer: Any,
    rdp_accountant: Any,
    user_rng: Any,
    noise_generator: Any,
) -> dict[str, Any]:
    state = {
        "secret": secret_seeds,
        "step": step,
        "network": network.state_dict(),
        "optimizer": optimizer.original_optimizer.state_dict(),
        "history": [list(entry) for entry in rdp_accountant.history],
        "choice": user_rng.bit_generator.state,
        "noises": noise_generator.get_state(),
        "torch": torch.get_rng_state(),
    }
    if network.firsts.is_cuda:
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _restored_step(
    state: Mapping[str, Any],
    network: TransformerNetwork,
    optimizer: Any,
    rdp_accountant: Any,
    user_rng: Any,
    noise_generator: Any,
) -> int:
    try:
        network.load_state_dict(state["network"])
        optimizer.original_optimizer.load_state_dict(state["optimizer"])
        rdp_accountant.history = [(float(a), float(b), int(c)) for a, b, c in state["history"]]
        user_rng.bit_generator.state = state["choice"]
        noise_generator.set_state(state["noises"])
        torch.set_rng_state(state["torch"])
        if network.firsts.is_cuda:
            torch.cuda.set_rng_state(state["cuda"])
        return int(state["step"])
    except (KeyError, RuntimeError, ValueError, TypeError) as problem:
        raise InputError(
            f"the saved training does not match this one ({str(problem).splitlines()[0]}); start again with --force"
        ) from None
