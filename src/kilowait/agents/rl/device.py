"""Device, precision and random generator of the training, and the transfer of observations to the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.errors import InputError, TrainingError, UnknownNameError
from kilowait.rng import stream

PRECISIONS = ("float32", "bf16")


@contextmanager
def use_device(device: str | torch.device, threads: int | None) -> Iterator[torch.device]:
    """The device, with this number of CPU threads inside the context; None leaves torch's setting.

    >>> with use_device("cpu", 1) as device:
    ...     print(device, torch.get_num_threads())
    cpu 1
    """
    try:
        torch_device = torch.device(device)
    except RuntimeError:
        torch_device = torch.device("meta")
    if torch_device.type not in ("cpu", "cuda"):
        raise UnknownNameError("device", str(device), ["cpu", "cuda"])
    if torch_device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"the device is {device!r} and torch finds no CUDA here; take 'cpu', or another torch")
    if torch_device.type == "cuda" and (torch_device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"the device is {device!r} and there are {torch.cuda.device_count()}, from cuda:0 on")
    if threads is not None and threads < 1:
        raise InputError(f"{threads} threads; there must be at least 1")
    previous = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield torch_device
    except RuntimeError as problem:
        if not any(message in str(problem) for message in ("out of memory", "can't allocate memory")):
            raise
        first = str(problem).splitlines()[0]
        raise TrainingError(
            f"the memory of {device!r} is full ({first}); take fewer environments, a smaller queue window, or smaller "
            "batches; existing checkpoints are unchanged"
        ) from None
    finally:
        torch.set_num_threads(previous)


def lower_precision(device: torch.device, precision: str) -> torch.autocast:
    """Autocast context for forward passes: bf16 if requested, float32 otherwise."""
    if precision not in PRECISIONS:
        raise UnknownNameError("precision", precision, PRECISIONS)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class DeviceTransfer:
    """Copies the observations of a step to the device; on CUDA asynchronously through pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pinned: dict[str, Tensor] = {}
        self._arrived: torch.cuda.Event | None = None

    def __call__(
        self, observation: Mapping[str, npt.NDArray[Any]], into: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """The observation as tensors on the device, written `into` existing tensors if given."""
        observation = ensure_allowed_action(observation)
        arrays = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in observation.items()}
        if self.device.type != "cuda":
            if into is None:
                return arrays
            return {name: into[name].copy_(array) for name, array in arrays.items()}
        if self._arrived is not None:
            self._arrived.synchronize()  # wait until the previous copy from pinned memory has finished
        transferred = {}
        for name, array in arrays.items():
            pinned = self._pinned.get(name)
            if pinned is None or pinned.shape != array.shape:
                pinned = self._pinned[name] = torch.empty_like(array, pin_memory=True)
            pinned.copy_(array)
            if into is None:
                transferred[name] = pinned.to(self.device, non_blocking=True)
            else:
                transferred[name] = into[name].copy_(pinned, non_blocking=True)
        self._arrived = torch.cuda.current_stream(self.device).record_event()
        return transferred


def ensure_allowed_action(observation: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
    """The observation with at least one allowed action in every environment.

    Where the queue is empty there may be no allowed action although simulated time must advance: then action 0 is the
    only allowed one, so nothing is learned from it. Where jobs wait and no action is allowed, the environment is wrong.

    >>> empty = {"jobs": np.zeros((1, 2, 3)), "mask": np.zeros((1, 2), np.int8)}
    >>> ensure_allowed_action(empty)["mask"].tolist()
    [[1, 0]]
    """
    no_action = ~(observation["mask"] != 0).any(-1)
    if not no_action.any():
        return observation
    wrong = no_action & (observation["jobs"] != 0).any((1, 2))
    if wrong.any():
        raise TrainingError(
            f"environment {int(np.argmax(wrong))} has waiting jobs and allows no action at all; "
            "its mask must allow at least one action, for example the hold action"
        )
    mask = observation["mask"].copy()
    mask[no_action, 0] = 1
    return {**observation, "mask": mask}


class TorchRng:
    """A torch generator on the device, seeded by our seed and the name of its purpose, with a saveable state."""

    def __init__(self, seed: int, name: str, device: torch.device) -> None:
        self.generator = torch.Generator(device)
        self.generator.manual_seed(int(stream(seed, name).integers(2**62)))

    def state_dict(self) -> dict[str, Tensor]:
        """State of the generator."""
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state."""
        self.generator.set_state(state["state"].cpu())
