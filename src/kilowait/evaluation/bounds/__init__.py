"""Lower bounds on metrics, optimal schedules of small problems, and perfect run-time estimates."""

from kilowait.evaluation.bounds.lower_bounds import Bounds, lower_bounds
from kilowait.evaluation.bounds.optimum import Optimum, optimum
from kilowait.evaluation.bounds.perfect_estimates import with_perfect_estimates

__all__ = ["Bounds", "Optimum", "lower_bounds", "optimum", "with_perfect_estimates"]
