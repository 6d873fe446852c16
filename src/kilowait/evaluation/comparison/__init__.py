"""Statistical comparison of policies on the same windows: means, bootstrap intervals, significance tests."""

from kilowait.evaluation.comparison.pairwise import PairwiseResult
from kilowait.evaluation.comparison.result import Comparison, EnergyResults, PolicyConfig, PowerCurve, SignalCurve
from kilowait.evaluation.comparison.significance import ComparisonResult, PolicyMean, PolicyScores, pairwise_tests
from kilowait.evaluation.comparison.windows import Split, Window, Windows, cut_windows, single_window, split

__all__ = [
    "PolicyConfig",
    "Comparison",
    "PowerCurve",
    "EnergyResults",
    "ComparisonResult",
    "PolicyMean",
    "PairwiseResult",
    "PolicyScores",
    "SignalCurve",
    "Split",
    "Window",
    "Windows",
    "cut_windows",
    "pairwise_tests",
    "split",
    "single_window",
]
