"""Is one scheduler better than another? The same windows for all, and a verdict with its uncertainty."""

from kilowait.evaluation.comparison.pairwise import WORDS, Pair
from kilowait.evaluation.comparison.result import (
    JUDGED,
    Contender,
    Contest,
    Curve,
    EnergyRecord,
    Signal,
)
from kilowait.evaluation.comparison.significance import (
    Judgement,
    Mean,
    Scores,
    judge,
)
from kilowait.evaluation.comparison.windows import (
    Split,
    Window,
    Windows,
    cut_windows,
    split,
    whole,
)

__all__ = [
    "JUDGED",
    "WORDS",
    "Contender",
    "Contest",
    "Curve",
    "EnergyRecord",
    "Judgement",
    "Mean",
    "Pair",
    "Scores",
    "Signal",
    "Split",
    "Window",
    "Windows",
    "cut_windows",
    "judge",
    "split",
    "whole",
]
