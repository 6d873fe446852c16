"""On which jobs contenders meet: the whole of a log, or windows of it, as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kilowait.errors import InputError
from kilowait.evaluation.comparison import (
    PolicyConfig,
    Windows,
    cut_windows,
    single_window,
    split,
)
from kilowait.jobs import JobTable
from kilowait.units import parse_duration

__all__ = ["WindowOptions", "parse_length", "protocol_of"]


@dataclass(frozen=True)
class WindowOptions:
    """On which jobs contenders meet."""

    windows: int | None = None
    """How many; None: one, the whole part."""
    window_jobs: int | None = None
    window_s: float | None = None
    warmup_jobs: int = 0
    warmup_s: float = 0.0
    split: str = "all"
    """all, train, validation or test: the log by time in 60, 20 and 20 per cent."""
    seed: int = 0

    def cut(self, jobs: JobTable) -> Windows:
        """The windows of a log."""
        within = None if self.split == "all" else split(jobs).row_range(self.split)
        if self.windows is None:
            return single_window(jobs, within=within)
        length = {"window_jobs": self.window_jobs, "window_s": self.window_s}
        warmup = {"warmup_jobs": self.warmup_jobs, "warmup_s": self.warmup_s}
        return cut_windows(jobs, self.windows, seed=self.seed, within=within, **length, **warmup)  # type: ignore[arg-type]


def protocol_of(
    windows: int | None, length: str, warmup: str, split: str, seed: int, policies: Sequence[PolicyConfig]
) -> WindowOptions:
    """The protocol as people write it; with ``auto`` an agent is judged on the last part of the log only.

    >>> protocol_of(3, "7d", "100", "auto", 0, [PolicyConfig("fcfs", "easy")]).window_s
    604800.0
    """
    jobs, seconds = parse_length(length, "length of a window")
    warm_jobs, warm_s = parse_length(warmup, "warm-up")
    if split == "auto":
        split = "test" if any(contender.kind == "agent" for contender in policies) else "all"
    if windows is None and (warm_jobs or warm_s):
        raise InputError("a warm-up goes before windows; say how many with --windows")
    return WindowOptions(windows, None if seconds else jobs, seconds or None, warm_jobs, warm_s, split, seed)


def parse_length(text: str, what: str) -> tuple[int, float]:
    """Jobs and seconds: a plain number is jobs, one with a unit is time.

    >>> parse_length("1024", "window"), parse_length("7d", "window")
    ((1024, 0.0), (0, 604800.0))
    """
    plain = text.strip().replace(",", "").replace("_", "")
    if plain.lstrip("-").isdecimal():
        return int(plain), 0.0
    try:
        return 0, parse_duration(text)
    except ValueError as problem:
        raise InputError(
            f"the {what} is {text!r}; write a number of jobs such as 1024 or a span such as 7d"
        ) from problem
