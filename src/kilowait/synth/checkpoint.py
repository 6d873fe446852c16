"""Trainings that are killed and gone on with: the steps of one, and what is kept between them.

What decides how a training goes on is in one state: its parts (networks, optimizers, rates, orders), torch's random
numbers and the step. It is handed to a `Keep` every now and then; gone on with, a training ends with the bytes it would
have had. What comes before the steps follows from the log and the seed, and is done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kilowait.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["CheckpointStore", "HasStateDict", "checkpointed_steps"]

KEPT_EVERY = 200
"""Steps."""


class CheckpointStore(Protocol):
    """Where the state of a training is kept, so that a killed one can be gone on with."""

    def read(self) -> dict[str, Any] | None:
        """The state to go on with; None where there is none."""

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep a state in place of the one before."""


class HasStateDict(Protocol):
    """What changes from step to step, in the form that torch's own have."""

    def state_dict(self) -> dict[str, Any]:
        """All that decides how it goes on."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Be as a state was."""


def checkpointed_steps(
    steps: int, keep: CheckpointStore | None, device: torch.device, **parts: HasStateDict
) -> Iterator[int]:
    """Numbers of the steps that a training has yet to take: all, from 0 on, where no state of it is kept.

    Between steps the state is kept, so the training must have taken a step when it asks for the next.

    Args:
        steps: of the whole training.
        keep: where its state is kept, and one that is there is gone on with; None for nowhere.
        device: where it learns.
        parts: all that its steps change, by name, as made for the first step; what is kept of them is put back.
    """
    begun = None if keep is None else keep.read()
    step = 0 if begun is None else _gone_on(begun, steps, device, parts)
    while step < steps:
        yield step
        step += 1
        if keep is not None and step % KEPT_EVERY == 0 and step < steps:
            keep.write(_state(step, device, parts))


def _state(step: int, device: torch.device, parts: Mapping[str, HasStateDict]) -> dict[str, Any]:
    import torch

    state: dict[str, Any] = {name: part.state_dict() for name, part in parts.items()}
    state |= {"step": step, "torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _gone_on(
    state: Mapping[str, Any], steps: int, device: torch.device, parts: Mapping[str, HasStateDict]
) -> int:
    """Put all back as it was, and say after how many steps that was."""
    import torch

    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["torch"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], device)
        step = int(state["step"])
        if not 0 < step < steps:
            raise ValueError(f"it has taken {step} steps, and this one takes {steps}")
        return step
    except KeyError as problem:
        why = f"it has no {problem}"
    except (AttributeError, RuntimeError, TypeError, ValueError) as problem:
        # The first line of torch names the network, the second what is wrong with it.
        why = " ".join(line.strip() for line in str(problem).splitlines()[:2])
    raise InputError(f"the training that was begun does not fit this one ({why}); begin anew with --force")
