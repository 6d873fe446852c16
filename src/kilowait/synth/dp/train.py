"""Differentially private training (DP-SGD) with users as examples: one sequence of jobs per sampled user and step.

M. Abadi et al., "Deep learning with differential privacy", CCS 2016, with users for examples (H. B. McMahan et al.,
ICLR 2018). Gradients of single users come from `torch.func`; Opacus clips them, adds the noise and keeps the books.
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
from kilowait.synth.transformer.dataset import (
    DatasetTensors,
    SequenceBatch,
    dataset_tensors,
    next_job_loss,
)
from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork
from kilowait.synth.transformer.train import init_output_layer

__all__ = ["PrivateDataset", "private_train"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
History = list[tuple[float, float, int]]

STRETCH = 64
"""Maximum jobs of a user in a step."""
CLIP = 1.0
"""Clipping norm of a user's gradient."""
RATE = 4e-3
REPORT_EVERY, CHECKPOINT_EVERY = 10, 50
"""Steps."""


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
    lesson: PrivateDataset,
    budget: PrivacyBudget,
    noise: float,
    *,
    seed: int,
    secret: list[int],
    progress: SampleProgress,
    device: torch.device,
    checkpoints: CheckpointStore | None = None,
    begun: Mapping[str, Any] | None = None,
) -> tuple[TransformerNetwork, History]:
    """Train a network, and return it with the privacy mechanisms used.

    Args:
        lesson: training data.
        budget: steps and sampling rate of users.
        noise: deviation of the noise in units of `CLIP`.
        seed: of the initial weights.
        secret: random generators of the noise and of the user sampling; stored only in `checkpoints`.
        progress: progress callback.
        device: where it is trained.
        checkpoints: checkpoint store.
        begun: a state to resume from.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.optimizers import DPOptimizer
    except ImportError:
        raise MissingExtraError("opacus", "private") from None
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        network = TransformerNetwork(lesson.shape)
        init_output_layer(network, [1000.0 * shares for shares in lesson.counts])
        for table in (network.share, network.level):
            table.weight.requires_grad_(False)  # frequent-job lists are empty
        network = network.to(device)
        module = _SequenceLoss(network)
        known = dataset_tensors(lesson.calendar, lesson.codes, lesson.shape, device)
        people = _people(lesson.user)
        choice = np.random.default_rng([*secret, 1])
        noises = torch.Generator(device).manual_seed(int(np.random.default_rng([*secret, 2]).integers(2**62)))
        torch.manual_seed(int(np.random.default_rng([*secret, 3]).integers(2**62)))
        parameters = [one for one in network.parameters() if one.requires_grad]
        optimizer = DPOptimizer(
            torch.optim.Adam(parameters, lr=RATE),
            noise_multiplier=noise,
            max_grad_norm=CLIP,
            expected_batch_size=max(1.0, budget.rate * lesson.users),
            generator=noises,
        )
        book = accountant()
        optimizer.attach_step_hook(book.get_optimizer_hook_fn(sample_rate=budget.rate))
        step = 0
        if begun is not None:
            step = _go_on(begun, network, optimizer, book, choice, noises)
        while step < budget.steps:
            rows = _some_users(people, budget.rate, choice)
            _gradients(module, known, rows, people)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % REPORT_EVERY == 1:
                progress("private training", step / budget.steps)
            if checkpoints is not None and step % CHECKPOINT_EVERY == 0 and step < budget.steps:
                checkpoints.write(_state(secret, step, network, optimizer, book, choice, noises))
    progress("private training", 1.0)
    for one in network.parameters():
        one.requires_grad_(True)
    return network.cpu().eval(), [(float(a), float(b), int(c)) for a, b, c in book.history]


def _people(user: Ints) -> Ints:
    """First row of each user's jobs, and one past the last."""
    first = np.flatnonzero(np.append(True, user[1:] != user[:-1]))
    return np.column_stack([first, np.append(first[1:], len(user))])


def _some_users(people: Ints, rate: float, rng: np.random.Generator) -> Ints:
    """Poisson sample of users, and the start of a sequence of their jobs."""
    who = np.flatnonzero(rng.random(len(people)) < rate)
    room = np.maximum(people[who, 1] - people[who, 0] - STRETCH, 0)
    begin = people[who, 0] + np.floor(rng.random(len(who)) * (room + 1)).astype(np.int64)
    return np.column_stack([who, begin])


def _gradients(module: _SequenceLoss, lesson: DatasetTensors, chosen: Ints, people: Ints) -> None:
    """Set the per-user gradients of the sampled users on each parameter."""
    named = {name: one for name, one in module.named_parameters() if one.requires_grad}
    if not len(chosen):
        for one in named.values():
            one.grad_sample = torch.zeros((0, *one.shape), device=one.device)  # type: ignore[attr-defined]
        return
    who, begin = chosen.T
    place = np.arange(STRETCH)
    rows = begin[:, None] + place
    there = rows < people[who, 1][:, None]
    # The first quarter of a sequence that starts amid a user's jobs has too little context.
    counted = there & ((place >= STRETCH // 4) | (begin == people[who, 0])[:, None])
    device = lesson.codes.device
    at = torch.as_tensor(np.minimum(rows, people[who, 1][:, None] - 1), device=device)
    own = {
        "codes": lesson.codes[at],
        "before": lesson.before[at],
        "conditions": lesson.conditions[at],
        "first": lesson.first[at],
        "inside": lesson.inside[at],
        "user": torch.as_tensor(np.where(there, 0, -1), device=device),
        "counted": torch.as_tensor(counted, device=device),
        "home": torch.zeros_like(at),
    }
    shared = {name: getattr(lesson, name)[:1] for name in ("frequent_jobs", "offer", "share", "level")}
    order = [item.name for item in fields(SequenceBatch)]
    buffers = {name: one for name, one in module.named_parameters() if not one.requires_grad}

    def lost(parameters: dict[str, Tensor], *parts: Tensor) -> Tensor:
        whole = [part if name in shared else part[None] for name, part in zip(order, parts, strict=True)]
        return functional_call(module, {**parameters, **buffers}, tuple(whole))  # type: ignore[no-any-return]

    every = vmap(
        grad(lost), in_dims=(None, *(None if name in shared else 0 for name in order)), randomness="different"
    )
    detached = {name: one.detach() for name, one in named.items()}
    found = every(detached, *({**own, **shared}[name] for name in order))
    for name, one in named.items():
        one.grad_sample = found[name]  # type: ignore[attr-defined]


def _state(
    secret: list[int],
    step: int,
    network: TransformerNetwork,
    optimizer: Any,
    book: Any,
    choice: Any,
    noises: Any,
) -> dict[str, Any]:
    state = {
        "secret": secret,
        "step": step,
        "network": network.state_dict(),
        "optimizer": optimizer.original_optimizer.state_dict(),
        "history": [list(one) for one in book.history],
        "choice": choice.bit_generator.state,
        "noises": noises.get_state(),
        "torch": torch.get_rng_state(),
    }
    if network.firsts.is_cuda:
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _go_on(
    state: Mapping[str, Any], network: TransformerNetwork, optimizer: Any, book: Any, choice: Any, noises: Any
) -> int:
    try:
        network.load_state_dict(state["network"])
        optimizer.original_optimizer.load_state_dict(state["optimizer"])
        book.history = [(float(a), float(b), int(c)) for a, b, c in state["history"]]
        choice.bit_generator.state = state["choice"]
        noises.set_state(state["noises"])
        torch.set_rng_state(state["torch"])
        if network.firsts.is_cuda:
            torch.cuda.set_rng_state(state["cuda"])
        return int(state["step"])
    except (KeyError, RuntimeError, ValueError, TypeError) as problem:
        raise InputError(
            f"the saved training does not match this one ({str(problem).splitlines()[0]}); "
            "start again with --force"
        ) from None
