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
TURNS = 100
SETTLED = 1e-4
"""Convergence tolerance of the weights per iteration."""
MOST = 20_000
"""Maximum number of values used for the fit."""


@dataclass(frozen=True)
class GaussianMixture:
    """Components of a Gaussian mixture."""

    share: Floats
    mean: Floats
    deviation: Floats

    def chances(self, values: Floats) -> Floats:
        """Posterior probability of each component for each value, (values, components)."""
        away = (values[:, None] - self.mean) / self.deviation
        chances: Floats = softmax(np.log(self.share / self.deviation) - 0.5 * away**2, axis=1)
        return chances

    def assigned(self, values: Floats, rng: np.random.Generator) -> Ints:
        """A component for each value, sampled from the posterior."""
        ends = np.cumsum(self.chances(values), axis=1)
        drawn = (rng.random(len(values))[:, None] * ends[:, -1:] >= ends).sum(axis=1)
        chosen: Ints = np.minimum(drawn, len(self.share) - 1).astype(np.int64)
        return chosen


def fit_mixture(values: Floats, *, most: int, rng: np.random.Generator) -> GaussianMixture:
    """Fit a mixture of at most `most` components to the values (at least one value).

    >>> rng = np.random.default_rng(0)
    >>> both = np.concatenate([rng.normal(0, 1, 600), rng.normal(20, 2, 400)])
    >>> found = fit_mixture(both, most=8, rng=rng)
    >>> found.share[found.mean < 10].sum().round(1)
    np.float64(0.6)
    """
    if len(values) > MOST:
        values = rng.choice(values, MOST, replace=False)
    centre, variance = float(values.mean()), float(values.var())
    floor = 1e-3 * np.sqrt(variance) + 1e-6
    if variance < 1e-12:
        return GaussianMixture(np.ones(1), np.array([centre]), np.array([floor]))
    # Initialize with quantile slices.
    slices = np.minimum(np.argsort(np.argsort(values, kind="stable")) * most // len(values), most - 1)
    weight = np.eye(most)[slices]
    share = np.zeros(most)
    mean, precision = np.zeros(most), np.ones(most)
    for _ in range(TURNS):
        jobs = weight.sum(axis=0) + 1e-10
        middle = weight.T @ values / jobs
        spread = np.einsum("vk,vk->k", weight, (values[:, None] - middle) ** 2)
        belief = 1.0 + jobs
        mean = (centre + jobs * middle) / belief
        inverse = variance / most**2 + spread + jobs / belief * (middle - centre) ** 2
        precision = belief / inverse
        alpha = CONCENTRATION + jobs
        log_precision = digamma(belief / 2) + np.log(2.0) - np.log(inverse)
        log_share = digamma(alpha) - digamma(alpha.sum())
        away = (values[:, None] - mean) ** 2
        weight = softmax(log_share + 0.5 * log_precision - 0.5 * (1 / belief + precision * away), axis=1)
        before, share = share, alpha / alpha.sum()
        if np.abs(share - before).sum() < SETTLED:
            break
    kept = share >= MIN_SHARE
    if not kept.any():
        kept = share == share.max()
    return GaussianMixture(
        share[kept] / share[kept].sum(), mean[kept], np.maximum(1 / np.sqrt(precision[kept]), floor)
    )
