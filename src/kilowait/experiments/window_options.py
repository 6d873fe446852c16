"""Evaluation windows of a comparison, as on the command line: the full log, a split of it, or random windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kilowait.errors import InputError
from kilowait.evaluation.comparison import PolicyConfig, Windows, cut_windows, single_window, split
from kilowait.jobs import JobTable
from kilowait.units import parse_duration

__all__ = ["WindowOptions", "parse_window_options"]


@dataclass(frozen=True)
class WindowOptions:
    """Number, length and warm-up of windows, and the split of the log they are cut from."""

    windows: int | None = None
    """Number of windows; None: one window, the full split."""
    window_jobs: int | None = None
    """Length of a window in jobs."""
    window_s: float | None = None
    """Length of a window in seconds."""
    warmup_jobs: int = 0
    """Jobs before each window that are simulated but not evaluated."""
    warmup_s: float = 0.0
    """The same in seconds."""
    split: str = "all"
    """all, train, validation or test: 60, 20 and 20 per cent of the log, in order of time."""
    seed: int = 0

    def cut(self, jobs: JobTable) -> Windows:
        """The windows of a log."""
        within = None if self.split == "all" else split(jobs).row_range(self.split)
        if self.windows is None:
            return single_window(jobs, within=within)
        length = {"window_jobs": self.window_jobs, "window_s": self.window_s}
        warmup = {"warmup_jobs": self.warmup_jobs, "warmup_s": self.warmup_s}
        return cut_windows(jobs, self.windows, seed=self.seed, within=within, **length, **warmup)  # type: ignore[arg-type]


def parse_window_options(
    windows: int | None, length: str, warmup: str, split: str, seed: int, policies: Sequence[PolicyConfig]
) -> WindowOptions:
    """Parse window options; the split ``auto`` is test if an agent is among the policies, else all.

    >>> parse_window_options(3, "7d", "100", "auto", 0, [PolicyConfig("fcfs", "easy")]).window_s
    604800.0
    """
    jobs, seconds = parse_length(length, "length of a window")
    warm_jobs, warm_s = parse_length(warmup, "warm-up")
    if split == "auto":
        split = "test" if any(config.kind == "agent" for config in policies) else "all"
    if windows is None and (warm_jobs or warm_s):
        raise InputError("a warm-up needs windows; give their number with --windows")
    return WindowOptions(windows, None if seconds else jobs, seconds or None, warm_jobs, warm_s, split, seed)


def parse_length(text: str, what: str) -> tuple[int, float]:
    """A length in jobs and seconds, one of which is 0: a plain number means jobs, a number with a unit means time.

    >>> parse_length("1024", "window"), parse_length("7d", "window")
    ((1024, 0.0), (0, 604800.0))
    """
    digits = text.strip().replace(",", "").replace("_", "")
    if digits.lstrip("-").isdecimal():
        return int(digits), 0.0
    try:
        return 0, parse_duration(text)
    except ValueError as problem:
        raise InputError(
            f"the {what} is {text!r}; write a number of jobs such as 1024 or a duration such as 7d"
        ) from problem
