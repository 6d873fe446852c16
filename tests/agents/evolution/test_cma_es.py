"""CMA-ES on functions with known minimum."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.agents import EvolutionStrategy, minimize
from kilowait.errors import InputError


def sphere(x):
    return float(((x - np.arange(len(x))) ** 2).sum())


def rosenbrock(x):
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def test_minimum_of_sphere_is_found():
    point, value = minimize(sphere, np.full(6, 5.0), step=2.0, seed=0, generations=150)
    assert np.allclose(point, np.arange(6), atol=1e-5)
    assert value < 1e-10


def test_minimum_of_rosenbrock_is_found():
    """Rosenbrock's function needs the covariance of the variables."""
    point, value = minimize(rosenbrock, np.zeros(5), step=0.5, seed=1, generations=500)
    assert np.allclose(point, 1.0, atol=1e-4)
    assert value < 1e-8


def test_minimum_of_ellipsoid_is_found():
    scales = 10.0 ** np.arange(5)
    point, _ = minimize(lambda x: float((scales * x**2).sum()), np.ones(5), step=1.0, seed=2, generations=300)
    assert np.abs(point).max() < 1e-4


def test_only_ranks_count():
    points = [
        minimize(function, [3.0, 3.0], step=1.0, seed=3, generations=20)[0]
        for function in (sphere, lambda x: np.log1p(sphere(x)))
    ]
    assert np.array_equal(*points)


def test_seed_determines_search_and_zero_is_valid():
    runs = [minimize(sphere, [3.0, 3.0], step=1.0, seed=seed, generations=9)[0].tolist() for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_nan_ranks_last():
    def nan_region(x):
        return float("nan") if x[0] > 2 else sphere(x)

    point, _ = minimize(nan_region, [1.9, 3.0], step=1.0, seed=4, generations=80)
    assert np.allclose(point, [0, 1], atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": [], "step": 1.0}, "give a list of finite numbers"),
        ({"start": [float("nan")], "step": 1.0}, "give a list of finite numbers"),
        ({"start": [1.0], "step": 0.0}, "the first step is 0"),
        ({"start": [1.0], "step": 1.0, "population": 3}, "at least 4"),
    ],
)
def test_invalid_search_settings_are_errors(settings, message):
    with pytest.raises(InputError, match=message):
        EvolutionStrategy(settings.pop("start"), seed=0, **settings)


def test_number_of_values_must_match_candidates():
    search = EvolutionStrategy([0.0, 0.0], step=1.0, seed=0)
    with pytest.raises(InputError, match="needs one value for each"):
        search.tell(search.ask(), [1.0])
