from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from kilowait.errors import InputError
from kilowait.evaluation.comparison.bootstrap import Interval, WindowBootstrap, iqm, ratio_interval
from kilowait.evaluation.comparison.significance import WinCount, count_wins, holm, signed_rank


def mean_interval(values, **settings):
    return WindowBootstrap(len(values), **settings).mean(values)


def iqm_interval(values, **settings):
    return WindowBootstrap(len(values), **settings).iqm(values)


INTERVALS = {
    "mean": mean_interval,
    "iqm": iqm_interval,
    "ratio": lambda values, **kwargs: ratio_interval(values, np.ones(len(values)), **kwargs),
}
DARWIN = np.array([6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75])
"""Heights of cross- against self-fertilised maize, in eighths of an inch: Wilcoxon's statistic is 24."""


def seeded(seed=0):
    return np.random.default_rng(seed)


def ratio_of_means(ours, theirs, axis):
    return ours.mean(axis=axis) / theirs.mean(axis=axis)


# -- intervals --------------------------------------------------------------------------------------


def test_interval_of_a_mean_agrees_with_the_normal_approximation():
    values = seeded(1).normal(10.0, 2.0, 400)
    half = 1.96 * values.std(ddof=1) / 20
    result = mean_interval(values, random=seeded(), draws=8000)
    assert result.low == pytest.approx(values.mean() - half, abs=0.04 * half)
    assert result.high == pytest.approx(values.mean() + half, abs=0.04 * half)


def test_a_lower_level_gives_a_narrower_interval():
    values = seeded(1).normal(10.0, 2.0, 400)
    half = 1.645 * values.std(ddof=1) / 20
    result = mean_interval(values, random=seeded(), level=0.9, draws=8000)
    assert result.high - result.low == pytest.approx(2 * half, rel=0.04)


@pytest.mark.parametrize("windows", [9, 40])
def test_intervals_equal_scipys_bca(windows):
    random = seeded(3)
    ours, theirs = random.lognormal(1.0, 1.0, windows), random.lognormal(1.0, 0.8, windows)
    bootstrap = WindowBootstrap(windows, random=seeded(), draws=20_000)
    scipy_options = {"n_resamples": 20_000, "method": "BCa"}
    scipy_results = {
        bootstrap.mean(ours): stats.bootstrap((ours,), np.mean, rng=seeded(1), **scipy_options),
        bootstrap.ratio(ours, theirs): stats.bootstrap(
            (ours, theirs), ratio_of_means, paired=True, rng=seeded(1), **scipy_options
        ),
        bootstrap.iqm(ours): stats.bootstrap(
            (ours,), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), rng=seeded(1), **scipy_options
        ),
    }
    for result, scipy_result in scipy_results.items():
        low, high = scipy_result.confidence_interval
        assert result.low == pytest.approx(low, abs=0.03 * (high - low))
        assert result.high == pytest.approx(high, abs=0.03 * (high - low))


def test_bca_is_not_the_percentile_interval_on_skewed_values():
    values = seeded(3).lognormal(1.0, 1.0, 40)
    percentile_interval = np.quantile(values[WindowBootstrap(40, random=seeded()).rows].mean(axis=1), (0.025, 0.975))
    result = mean_interval(values, random=seeded())
    assert result.low > percentile_interval[0] and result.high > percentile_interval[1] + 0.05 * (
        percentile_interval[1] - percentile_interval[0]
    )


def test_the_ratio_interval_covers_the_true_ratio():
    random, trials, covered = seeded(4), 400, 0
    for _ in range(trials):
        window = random.lognormal(0.0, 0.6, 60)
        ours = 0.9 * window * random.lognormal(0.0, 0.15, 60)
        low, high = ratio_interval(ours, window * random.lognormal(0.0, 0.15, 60), random=random, draws=400)
        covered += low <= 0.9 <= high
    assert 0.90 <= covered / trials <= 0.98


def test_pairs_are_resampled_together():
    theirs = seeded(5).lognormal(0.0, 1.5, 50)
    assert ratio_interval(0.7 * theirs, theirs, random=seeded()) == pytest.approx((0.7, 0.7))


def test_inverse_ratio_has_the_inverse_interval():
    random = seeded(6)
    ours, theirs = random.lognormal(size=30), random.lognormal(size=30)
    low, high = ratio_interval(ours, theirs, random=seeded())
    # Only approximately: the jackknife skewness is not symmetric under inversion of the ratio.
    assert ratio_interval(theirs, ours, random=seeded()) == pytest.approx((1 / high, 1 / low), rel=0.03)


@pytest.mark.parametrize("theirs", [[0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [-1.0, -1.0, 3.0]])
def test_ratio_to_a_possible_zero_is_undefined(theirs):
    assert all(math.isnan(end) for end in ratio_interval([1.0, 2.0, 3.0], theirs, random=seeded()))


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e-200])
def test_constant_values_have_an_interval_of_one_point(name, value):
    low, high = INTERVALS[name](np.full(7, value), random=seeded())
    assert low == high == pytest.approx(value, rel=1e-15, abs=0.0)


@pytest.mark.parametrize("name", INTERVALS)
def test_one_window_has_no_interval(name):
    assert all(math.isnan(end) for end in INTERVALS[name]([3.0], random=seeded()))


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("values", [[1.0, 2.0], [0.0, 0.0, 0.0, 9.0], [1e-200, 3e-200, 8e-200]])
def test_tiny_samples_give_an_interval_around_the_value(name, values):
    low, high = INTERVALS[name](values, random=seeded())
    result = iqm(values) if name == "iqm" else np.mean(values)
    assert min(values) <= low <= result <= high <= max(values)


def test_percentile_interval_if_bca_is_undefined():
    values = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]  # the interquartile mean stays 0 in every jackknife sample
    bootstrap = WindowBootstrap(8, random=seeded())
    resampled = np.sort(np.array(values)[bootstrap.rows], axis=1)[:, 2:6].mean(axis=1)
    assert resampled.max() > 0
    assert bootstrap.iqm(values) == tuple(np.quantile(resampled, (0.025, 0.975)))


def test_draws_equal_to_the_estimate_count_half():
    low, high = mean_interval([0.0, 1.0] * 5, random=seeded())
    assert low + high == pytest.approx(1.0) and low < 0.3


def test_same_draws_same_interval():
    values = seeded(7).lognormal(size=30)
    assert mean_interval(values, random=seeded(1)) == mean_interval(values, random=seeded(1))
    assert mean_interval(values, random=seeded(1)) != mean_interval(values, random=seeded(2))


# -- blocks -----------------------------------------------------------------------------------------


def test_blocks_are_circular():
    rows = WindowBootstrap(10, random=seeded(), block=4, draws=500).rows
    assert rows.shape == (500, 10)
    step = np.diff(rows, axis=1) % 10
    assert (step[:, [0, 1, 2, 4, 5, 6, 8]] == 1).all()
    assert len(np.unique(step[:, 3])) == 10
    assert np.bincount(rows[:, 0], minlength=10).min() > 20


def test_blocks_widen_intervals_of_overlapping_windows():
    independent, overlapping = seeded(8).normal(size=300), seeded(8).normal(size=303)
    overlapping = np.convolve(overlapping, np.ones(4) / 4, "valid")

    def widening(values):
        low, high = mean_interval(values, random=seeded())
        wide_low, wide_high = mean_interval(values, random=seeded(), block=4)
        return (wide_high - wide_low) / (high - low)

    # In theory the square root of 1 + 2 (3/4 * 3/4 + 1/2 * 1/2 + 1/4 * 1/4) = 2.75.
    assert widening(overlapping) == pytest.approx(math.sqrt(2.75), rel=0.15)
    assert widening(independent) == pytest.approx(1.0, rel=0.15)


def test_fewer_than_two_blocks_have_no_interval():
    values = seeded().random(7)
    assert not math.isnan(mean_interval(values, random=seeded(), block=3).low)
    assert all(math.isnan(end) for end in mean_interval(values, random=seeded(), block=4))
    assert all(math.isnan(end) for end in mean_interval(values, random=seeded(), block=40))


# -- interquartile mean -----------------------------------------------------------------------------


def test_interquartile_mean_examples():
    assert iqm([8, 1, 2, 3, 4, 5, 6, 1000]) == (3 + 4 + 5 + 6) / 4
    assert iqm([9, 1, 2]) == 4.0
    assert iqm([0, 2, 4, 6, 100]) == 4.0
    assert iqm([7]) == 7.0


@pytest.mark.parametrize("count", range(1, 14))
def test_interquartile_mean_equals_scipys(count):
    values = seeded(count).lognormal(size=count)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


# -- signed ranks -----------------------------------------------------------------------------------


def test_signed_rank_of_five_windows():
    # Ranks 1 to 5, the 2 against ours: 3 of 32 patterns ({}, {1}, {2}) reach a sum of at most 2, on either side.
    result = signed_rank([0, 0, 0, 0, 0], [1, -2, 3, 4, 5])
    assert result == (2 * 3 / 32, pytest.approx((13 - 2) / 15))


def test_signs_and_ranks():
    assert signed_rank([5, 5, 5], [1, 2, 3]).effect == -1.0
    assert signed_rank([1, 2, 3], [5, 5, 5]) == (0.25, 1.0)
    assert signed_rank([0, 0], [1, -1]) == (1.0, 0.0)
    assert signed_rank([0, 0, 0], [1, 1, -4]).effect == 0.0  # 1.5 + 1.5 against 3


def test_darwins_maize():
    result = signed_rank(np.zeros(15), DARWIN)
    assert result.p == 0.041259765625
    assert result.effect == pytest.approx((96 - 24) / 120)


@pytest.mark.parametrize("windows", [2, 6, 30, 50, 51, 200])
def test_p_equals_scipys(windows):
    difference = seeded(windows).normal(0.3, 1.0, windows)
    method = "exact" if windows <= 50 else "asymptotic"
    expected = stats.wilcoxon(difference, method=method).pvalue
    assert signed_rank(np.zeros(windows), difference).p == pytest.approx(expected, rel=1e-9)
    assert signed_rank(difference, np.zeros(windows)).p == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_ties_are_counted_exactly(seed):
    difference = seeded(seed).integers(-3, 6, 9)
    result = signed_rank(np.zeros(9), difference).p
    nonzero = difference[difference != 0]
    ranks = stats.rankdata(np.abs(nonzero))
    away = abs(ranks[nonzero > 0].sum() - ranks.sum() / 2)
    sums = [np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=len(ranks))]
    assert result == pytest.approx(np.mean([abs(total - ranks.sum() / 2) >= away for total in sums]))


def test_no_difference_at_all():
    assert signed_rank([1.0, 2.0], [1.0, 2.0]) == (1.0, 0.0)
    assert signed_rank([1.0], [1.0]) == (1.0, 0.0)


def test_windows_without_a_difference_are_ignored():
    assert signed_rank([0, 0, 0, 0, 0, 7], [1, -2, 3, 4, 5, 7]) == signed_rank([0] * 5, [1, -2, 3, 4, 5])


def test_one_window_has_no_p_value():
    p, effect = signed_rank([1.0], [2.0])
    assert math.isnan(p) and effect == 1.0
    assert math.isnan(signed_rank([1.0, 2.0], [2.0, 4.0], block=2).p)


def test_with_blocks_only_windows_that_do_not_overlap_are_tested():
    ours, theirs = seeded(1).random(20), seeded(2).random(20)
    assert signed_rank(ours, theirs, block=3) == signed_rank(ours[::3], theirs[::3])


# -- multiple tests ---------------------------------------------------------------------------------


def test_holms_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_is_monotone_and_at_most_one():
    p = np.sort(seeded(3).random(20))
    corrected = holm(p)
    assert (np.diff(corrected) >= 0).all() and corrected.max() == 1.0 and (corrected >= p).all()
    assert holm([0.2]).tolist() == [0.2]
    assert holm([]).tolist() == []


def test_missing_p_values_count_in_the_correction():
    corrected = holm([math.nan, 0.01, 0.02])
    assert math.isnan(corrected[0])
    assert corrected[1:] == pytest.approx([0.03, 0.04])


def test_wins():
    assert count_wins([1, 2, 3, 3], [2, 2, 2, 4]) == WinCount(2, 1, 1)


# -- invalid input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("function", [*INTERVALS.values(), signed_rank, count_wins, iqm])
def test_nonfinite_values(function, value):
    arguments = ([1.0, value],) if function not in (signed_rank, count_wins) else ([1.0, 2.0], [1.0, value])
    random = {"random": seeded()} if function in INTERVALS.values() else {}
    with pytest.raises(InputError, match=f"window 1 .* is {value}; leave out"):
        function(*arguments, **random)


def test_no_windows():
    for function in (lambda: mean_interval([], random=seeded()), lambda: count_wins([], []), lambda: iqm([])):
        with pytest.raises(InputError, match="0 windows .* give at least one"):
            function()
    with pytest.raises(InputError, match="0 windows"):
        WindowBootstrap(0, random=seeded())


def test_different_windows():
    for function in (count_wins, signed_rank, lambda ours, theirs: ratio_interval(ours, theirs, random=seeded())):
        with pytest.raises(InputError, match="2 values against 3; give one of each"):
            function([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="2 values for 3 windows"):
        WindowBootstrap(3, random=seeded()).mean([1.0, 2.0])
    with pytest.raises(InputError, match=r"shape \(1, 2\)"):
        iqm([[1.0, 2.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": 1.0}, "the level is 1.0"),
        ({"level": 0.0}, "the level is 0.0"),
        ({"block": 0}, "blocks of 0 windows"),
        ({"draws": 10}, "10 draws are too few"),
    ],
)
def test_wrong_settings(arguments, message):
    with pytest.raises(InputError, match=message):
        mean_interval([1.0, 2.0], random=seeded(), **arguments)


def test_wrong_settings_of_tests():
    with pytest.raises(InputError, match="blocks of 0"):
        signed_rank([1.0], [2.0], block=0)
    with pytest.raises(InputError, match=r"p-values \[0.5, 1.5\]"):
        holm([0.5, 1.5])


def test_an_interval_is_a_pair():
    assert Interval(1.0, 2.0) == (1.0, 2.0)
