"""Is one scheduler better than another? The same windows for all, and a verdict with its uncertainty."""

from kilowait.evaluation.judging.contest import JUDGED, Contender, Contest, Curve, EnergyRecord, Signal
from kilowait.evaluation.judging.pairs import WORDS, Pair
from kilowait.evaluation.judging.protocol import Split, Window, Windows, cut_windows, split, whole
from kilowait.evaluation.judging.verdicts import Judgement, Mean, Scores, judge

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
