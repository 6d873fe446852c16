"""Checkpoints of a generator's training, and steps that resume after a crash.

One state determines how a training continues: its parts (networks, optimizers, learning rates, batch orders), torch's
random state and the step. It is written to a `CheckpointStore` at intervals; a resumed training ends with exactly the
same bytes. Preparation before the first step follows from the log and the seed, and is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kilowait.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["CheckpointStore", "HasStateDict", "checkpointed_steps"]

CHECKPOINT_EVERY = 200
"""Number of steps between checkpoints."""


class CheckpointStore(Protocol):
    """Storage of a training's state, so that the training can be resumed after a crash."""

    def read(self) -> dict[str, Any] | None:
        """The state to resume from; None where there is none."""

    def write(self, state: Mapping[str, Any]) -> None:
        """Store a state in place of the previous one."""


class HasStateDict(Protocol):
    """An object with torch's state_dict interface."""

    def state_dict(self) -> dict[str, Any]:
        """The state from which the training continues."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Restore the state."""


def checkpointed_steps(
    steps: int, checkpoints: CheckpointStore | None, device: torch.device, **parts: HasStateDict
) -> Iterator[int]:
    """Iterate over the remaining steps of a training: all, from 0, where there is no checkpoint.

    The state is stored between steps, so a step must be complete when the next is requested.

    Args:
        steps: number of steps of the complete training.
        checkpoints: checkpoint store, from which the training resumes if it has a state; None: no checkpoints.
        device: device of the training.
        parts: everything the steps change, by name, in its initial state; a stored state is restored into them.
    """
    state = None if checkpoints is None else checkpoints.read()
    step = 0 if state is None else _restored_step(state, steps, device, parts)
    while step < steps:
        yield step
        step += 1
        if checkpoints is not None and step % CHECKPOINT_EVERY == 0 and step < steps:
            checkpoints.write(_state(step, device, parts))


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
