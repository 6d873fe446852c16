"""Variational Gaussian mixture in one dimension.

C. M. Bishop, Pattern Recognition and Machine Learning, 2006, section 10.2: a Dirichlet prior with small weight removes
unused components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, softmax

from kilowait.synth.tabular.known_values import Floats, Ints

__all__ = ["GaussianMixture", "fit_mixture"]

CONCENTRATION = 1e-3
"""Concentration of the Dirichlet prior."""
MIN_SHARE = 0.005
"""Minimum weight; lighter components are dropped."""
MAX_ITERATIONS = 100
TOLERANCE = 1e-4
"""Convergence tolerance of the weights per iteration."""
MAX_VALUES = 20_000
"""Maximum number of values used for the fit."""


@dataclass(frozen=True)
class GaussianMixture:
    """Components of a Gaussian mixture."""

    share: Floats
    mean: Floats
    deviation: Floats

    def responsibilities(self, values: Floats) -> Floats:
        """Posterior probability of each component for each value, (values, components)."""
        z_score = (values[:, None] - self.mean) / self.deviation
        responsibilities: Floats = softmax(np.log(self.share / self.deviation) - 0.5 * z_score**2, axis=1)
        return responsibilities

    def sample_components(self, values: Floats, rng: np.random.Generator) -> Ints:
        """A component for each value, sampled from the posterior."""
        cumulative = np.cumsum(self.responsibilities(values), axis=1)
        index = (rng.random(len(values))[:, None] * cumulative[:, -1:] >= cumulative).sum(axis=1)
        chosen: Ints = np.minimum(index, len(self.share) - 1).astype(np.int64)
        return chosen


def fit_mixture(values: Floats, *, max_components: int, rng: np.random.Generator) -> GaussianMixture:
    """Fit a mixture of at most `max_components` components to the values (at least one value).

    >>> rng = np.random.default_rng(0)
    >>> values = np.concatenate([rng.normal(0, 1, 600), rng.normal(20, 2, 400)])
    >>> mixture = fit_mixture(values, max_components=8, rng=rng)
    >>> mixture.share[mixture.mean < 10].sum().round(1)
    np.float64(0.6)
    """
    if len(values) > MAX_VALUES:
        values = rng.choice(values, MAX_VALUES, replace=False)
    overall_mean, variance = float(values.mean()), float(values.var())
    floor = 1e-3 * np.sqrt(variance) + 1e-6
    if variance < 1e-12:
        return GaussianMixture(np.ones(1), np.array([overall_mean]), np.array([floor]))
    # Initialize with quantile slices.
    slices = np.minimum(
        np.argsort(np.argsort(values, kind="stable")) * max_components // len(values), max_components - 1
    )
    weight = np.eye(max_components)[slices]
    share = np.zeros(max_components)
    mean, precision = np.zeros(max_components), np.ones(max_components)
    for _ in range(MAX_ITERATIONS):
        effective_counts = weight.sum(axis=0) + 1e-10
        component_mean = weight.T @ values / effective_counts
        scatter = np.einsum("vk,vk->k", weight, (values[:, None] - component_mean) ** 2)
        pseudo_counts = 1.0 + effective_counts
        mean = (overall_mean + effective_counts * component_mean) / pseudo_counts
        inverse = (
            variance / max_components**2
            + scatter
            + effective_counts / pseudo_counts * (component_mean - overall_mean) ** 2
        )
        precision = pseudo_counts / inverse
        alpha = CONCENTRATION + effective_counts
        log_precision = digamma(pseudo_counts / 2) + np.log(2.0) - np.log(inverse)
        log_share = digamma(alpha) - digamma(alpha.sum())
        squared_difference = (values[:, None] - mean) ** 2
        weight = softmax(
            log_share + 0.5 * log_precision - 0.5 * (1 / pseudo_counts + precision * squared_difference), axis=1
        )
        previous, share = share, alpha / alpha.sum()
        if np.abs(share - previous).sum() < TOLERANCE:
            break
    used = share >= MIN_SHARE
    if not used.any():
        used = share == share.max()
    return GaussianMixture(share[used] / share[used].sum(), mean[used], np.maximum(1 / np.sqrt(precision[used]), floor))
