"""Training device of networks: CPU, or a CUDA GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kilowait.errors import InputError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    import torch

__all__ = ["check_device", "check_torch", "device_of", "one_thread"]

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
