"""Training of networks: the device, the learning-rate schedule, and steps that resume after a crash.

One state determines how a training continues: its parts (networks, optimizers, learning rates, batch orders), torch's
random state and the step. It is written to a checkpoint at intervals; a resumed training ends with exactly the same
bytes. Preparation before the first step follows from the log and the seed, and is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy.typing as npt

from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.files.array_file import StoredArrays
from kilowait.synth.sampler import SampleProgress

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim.lr_scheduler import OneCycleLR

Network = TypeVar("Network", bound="nn.Module")

CHECKPOINT_EVERY = 200
"""Number of steps between checkpoints."""
REPORT_EVERY = 20
"""Number of steps between progress reports."""
WARMUP_SHARE = 0.1
"""Share of the steps in which the learning rate rises."""


class CheckpointStore(Protocol):
    """Storage of a training's state, so that the training can be resumed after a crash: a `Checkpoint`, or in tests one
    in memory."""

    def read_if_exists(self) -> dict[str, Any] | None:
        """The state to resume from; None where there is none."""

    def write(self, state: Mapping[str, Any]) -> Any:
        """Store a state in place of the previous one."""


class HasStateDict(Protocol):
    """An object with torch's state_dict interface."""

    def state_dict(self) -> dict[str, Any]:
        """The state from which the training continues."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Restore the state."""


@dataclass(frozen=True)
class StatePart:
    """A part of a training's state with torch's interface, from two functions."""

    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], Any]


@dataclass(frozen=True)
class Training:
    """How a network is trained: seed, device, progress reports and checkpoints."""

    seed: int
    device: torch.device
    progress: SampleProgress
    checkpoints: CheckpointStore | None = None
    """Checkpoint store, from which the training resumes if it has a state; None: no checkpoints."""

    def steps(self, steps: int, parts: Mapping[str, HasStateDict], *, every: int | None = None) -> Iterator[int]:
        """Iterate over the remaining steps of a training: all, from 0, where there is no checkpoint.

        The state is stored between steps, so a step must be complete when the next is requested.

        Args:
            steps: number of steps of the complete training.
            parts: everything the steps change, by name, in its initial state; a stored state is restored into them.
            every: number of steps between checkpoints; None: `CHECKPOINT_EVERY`.
        """
        state = None if self.checkpoints is None else self.checkpoints.read_if_exists()
        step = 0 if state is None else _restored_step(state, steps, self.device, parts)
        while step < steps:
            yield step
            step += 1
            if self.checkpoints is not None and step % (every or CHECKPOINT_EVERY) == 0 and step < steps:
                self.checkpoints.write(_state(step, self.device, parts))

    def run(self, update: Callable[[int], Tensor | None], steps: int, parts: Mapping[str, HasStateDict]) -> None:
        """Run the remaining steps; `update` does one, and returns the loss where progress reports name it."""
        for step in self.steps(steps, parts):
            loss = update(step)
            if step % REPORT_EVERY == 0:
                self.progress("training" if loss is None else f"training, loss {loss.item():.2f}", step / steps)
        self.progress("training", 1.0)


def gradient_step(
    loss: Tensor,
    optimizer: torch.optim.Optimizer,
    lr_schedule: OneCycleLR | None = None,
    *,
    clipped: Iterable[Tensor] = (),
) -> None:
    """One step of an optimizer on a loss; the norm of the gradient of the `clipped` weights is at most 1."""
    from torch.nn.utils import clip_grad_norm_

    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    clip_grad_norm_(clipped, 1.0)
    optimizer.step()
    if lr_schedule is not None:
        lr_schedule.step()


def one_cycle_schedule(optimizer: torch.optim.Optimizer, max_rate: float, steps: int) -> OneCycleLR:
    """One-cycle learning-rate schedule over `steps` steps: rises in the first tenth of the training, then falls.

    L. N. Smith, N. Topin, "Super-convergence: very fast training of neural networks using large learning rates", 2019.
    """
    from torch.optim.lr_scheduler import OneCycleLR

    total = steps + 1
    # torch ends the rise at step `WARMUP_SHARE * total - 1` and divides by that.
    share = WARMUP_SHARE if WARMUP_SHARE * total != 1 else 1.1 * WARMUP_SHARE
    return OneCycleLR(optimizer, max_rate, total_steps=total, pct_start=share)


def _state(step: int, device: torch.device, parts: Mapping[str, HasStateDict]) -> dict[str, Any]:
    import torch

    state: dict[str, Any] = {name: part.state_dict() for name, part in parts.items()}
    state |= {"step": step, "torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _restored_step(
    state: Mapping[str, Any], steps: int, device: torch.device, parts: Mapping[str, HasStateDict]
) -> int:
    """Restore all parts, and return the number of completed steps."""
    import torch

    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["torch"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], device)
        step = int(state["step"])
        if not 0 < step < steps:
            raise ValueError(f"it has completed {step} steps, and this training has {steps}")
        return step
    except KeyError as problem:
        reason = f"it has no {problem}"
    except (AttributeError, RuntimeError, TypeError, ValueError) as problem:
        # The first line of torch names the network, the second what is wrong with it.
        reason = " ".join(line.strip() for line in str(problem).splitlines()[:2])
    raise InputError(f"the saved training does not match this one ({reason}); start again with --force")


# -- weights --------------------------------------------------------------------------------------


def network_weights(network: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """The weights of a network as arrays."""
    return {name: values.cpu().numpy() for name, values in network.state_dict().items()}


def restored_network(untrained: Callable[[], Network], weights: StoredArrays) -> Network:
    """A network with stored weights; an InputError if they are of another network.

    The shapes are compared before the network is built, so that it is not larger than the file of its weights.
    """
    import torch

    with torch.device("meta"):
        shapes = {name: tuple(values.shape) for name, values in untrained().state_dict().items()}
    stored = weights.weights()
    for name, shape in shapes.items():
        if name not in stored or stored[name].shape != shape:
            found = stored[name].shape if name in stored else "missing"
            raise weights.refuse(name, f"is {found}; it must be of the shape {shape}")
    unknown = [name for name in stored if name not in shapes]
    if unknown:
        raise weights.refuse(unknown[0][:100], "is not part of the network")
    network = untrained().eval()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in stored.items()})
    return network


# -- device ---------------------------------------------------------------------------------------


DEVICES = ("auto", "cpu", "cuda")
"""auto: a GPU if the machine has one, else the CPU."""


def device_of(name: str) -> torch.device:
    """The torch device for a name of `DEVICES`.

    >>> device_of("cpu")
    device(type='cpu')
    """
    check_device(name)
    check_torch()
    import torch

    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise InputError(
            "device is cuda, and torch finds no NVIDIA GPU on this machine; use cpu, or auto to use a GPU "
            "only where there is one"
        )
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def check_device(name: str) -> None:
    """Raise unless the name is one of `DEVICES`; `device_of` checks whether the machine has it."""
    if name not in DEVICES:
        raise UnknownNameError("device", str(name), DEVICES)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, so that the order of sums and thus the jobs of a seed do not depend on the number of cores."""
    check_torch()
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def check_torch() -> None:
    """Raise if torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("torch", "learn") from None


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Use one thread and a seed for torch's random state, which is restored afterwards."""
    check_torch()
    import torch

    with one_thread(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
