"""How far from the best: bounds no schedule can beat, the best schedule of a few jobs, and perfect estimates."""

from kilowait.evaluation.limits.bounds import Bounds, lower_bounds
from kilowait.evaluation.limits.clairvoyant import with_perfect_estimates
from kilowait.evaluation.limits.optimum import Optimum, optimum

__all__ = ["Bounds", "Optimum", "lower_bounds", "optimum", "with_perfect_estimates"]
