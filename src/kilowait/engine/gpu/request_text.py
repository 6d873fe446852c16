"""The request of a GPU job as text, for error messages."""

from __future__ import annotations

__all__ = ["request_text"]


def request_text(pieces: int, gpus: int, gpu_milli: int, cpu_milli: int, memory_bytes: int) -> str:
    """The request of a job as text: the number of its pieces and the amounts of each.

    >>> request_text(2, 4, 1000, 8000, 64_000_000)
    '2 x (4 GPUs, 8 cores, 64 MB)'
    """
    part = f"{gpu_milli}/1000 of a GPU" if gpu_milli < 1000 else f"{gpus} GPUs"
    return f"{pieces} x ({part}, {cpu_milli / 1000:g} cores, {memory_bytes / 1e6:g} MB)"
