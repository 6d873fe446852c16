from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

import kilowait as kw
from kilowait.energy.accounting import account_energy
from kilowait.energy.power import PowerModel
from kilowait.energy.signals.align import ExternalSignals
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.bootstrap import WindowBootstrap, iqm
from kilowait.evaluation.comparison.pairwise import PairwiseResult
from kilowait.evaluation.comparison.significance import PolicyScores, holm, pairwise_tests, signed_rank
from kilowait.evaluation.metric_definitions import METRIC_DEFINITIONS
from kilowait.rng import stream
from kilowait.series import Series

BASE = np.random.default_rng(0).lognormal(2.0, 0.5, 60)


def scores(*rows, metric="mean_bsld", **settings):
    return PolicyScores(metric, tuple("abcdefgh"[: len(rows)]), np.array(rows), **settings)


def noise(seed, sigma=0.1, windows=60):
    return np.random.default_rng(seed).lognormal(0.0, sigma, windows)


def example_pair(**changes):
    """A pairwise result for the tests of sentences."""
    pair = PairwiseResult(
        ours="saf",
        theirs="sjf",
        ours_mean=7.6,
        theirs_mean=10.0,
        ratio=0.76,
        low=0.70,
        high=0.83,
        difference=-2.4,
        difference_low=-3.0,
        difference_high=-1.7,
        wins=48,
        ties=0,
        losses=12,
        windows=60,
        p=0.001,
        p_holm=0.003,
        effect=0.8,
        verdict="better",
        metric="mean_bsld",
        better="less",
        level=0.95,
    )
    return dataclasses.replace(pair, **changes)


# -- outcomes ---------------------------------------------------------------------------------------


def test_clear_difference_is_symmetric():
    result = pairwise_tests(scores(BASE, 0.7 * BASE * noise(1)), seed=0)
    pair = result.pairs[0]
    assert (pair.ours, pair.theirs, pair.verdict, result.best) == ("b", "a", "better", "b")
    assert pair.low < pair.ratio < pair.high < 1 and pair.ratio == pytest.approx(0.7, abs=0.03)
    assert pair.difference_low < pair.difference == pair.ours_mean - pair.theirs_mean < pair.difference_high < 0
    assert pair.wins > 55 and pair.wins + pair.ties + pair.losses == pair.windows == 60
    assert pair.effect > 0.9
    assert result.pair("b", "a") is pair
    other = result.pair("a", "b")
    assert (other.ours, other.theirs, other.verdict) == ("a", "b", "worse")
    assert (other.ratio, other.low, other.high) == (1 / pair.ratio, 1 / pair.high, 1 / pair.low)
    assert (other.wins, other.losses, other.effect) == (pair.losses, pair.wins, -pair.effect)
    assert (other.difference_low, other.difference_high) == (-pair.difference_high, -pair.difference_low)
    assert (other.ours_mean, other.p_holm) == (pair.theirs_mean, pair.p_holm)
    assert other.swapped().verdict == "better"


def test_metric_where_more_is_better():
    result = pairwise_tests(scores(BASE, 1.3 * BASE * noise(1), metric="utilization", better="more"), seed=0)
    pair = result.pairs[0]
    assert (pair.ours, pair.verdict, result.best) == ("b", "better", "b")
    assert 1 < pair.low < pair.ratio < pair.high
    assert pair.wins > 55 and pair.effect > 0.9
    assert [mean.policy for mean in result.ranked()] == ["b", "a"]


def test_equal_scores_are_the_same():
    pair = pairwise_tests(scores(BASE, BASE), seed=0).pairs[0]
    assert (pair.ours, pair.verdict, pair.p, pair.effect, pair.ties) == ("a", "same", 1.0, 0.0, 60)
    assert (pair.ratio, pair.low, pair.high) == (1.0, 1.0, 1.0)
    assert pair.swapped().verdict == "same"


def test_one_outlier_window_is_not_significant():
    outlier = BASE * noise(1, 0.01)
    outlier[7] = 1e6
    pair = pairwise_tests(scores(BASE, outlier), seed=0).pairs[0]
    assert (pair.ours, pair.verdict) == ("a", "undecided") and pair.ratio < 0.1


def test_many_small_wins_and_one_large_loss_are_not_significant():
    ours = BASE * 0.98
    ours[7] += 0.018 * BASE.sum()
    pair = pairwise_tests(scores(BASE, ours), seed=0).pairs[0]
    assert (pair.ours, pair.wins) == ("b", 59) and pair.p_holm < 0.001 and pair.effect > 0.9
    assert pair.verdict == "undecided" and not pair.significant


def test_rank_test_and_interval_must_favor_the_same_policy():
    # Slightly worse in nearly all windows, much better in six.
    ours = BASE * 1.001
    ours[[3, 17, 29, 44, 51, 58]] *= 0.2
    pair = pairwise_tests(scores(ours, BASE), seed=0).pairs[0]
    assert pair.ours == "a" and pair.significant and pair.p_holm < 0.05 and pair.effect < 0
    assert pair.verdict == "undecided"
    assert pair.sentence().endswith("a wins 6 of 60 windows, but the signed-rank test favors b).")


def test_holm_correction_grows_with_the_number_of_pairs():
    rows = [BASE * noise(seed, 0.25) for seed in range(1, 6)] + [0.9 * BASE * noise(6, 0.25)]
    result = pairwise_tests(scores(*rows), seed=0)
    assert len(result.pairs) == 15
    assert [pair.p_holm for pair in result.pairs] == holm([pair.p for pair in result.pairs]).tolist()
    assert sum(pair.p < 0.05 for pair in result.pairs) > sum(pair.p_holm < 0.05 for pair in result.pairs)
    for pair in result.pairs:
        rows_of = dict(zip("abcdef", rows, strict=True))
        assert pair.p == signed_rank(rows_of[pair.ours], rows_of[pair.theirs]).p
        assert pair.ours_mean <= pair.theirs_mean


def test_means():
    result = pairwise_tests(scores(BASE, 2 * BASE), seed=0)
    assert [mean.policy for mean in result.means] == ["a", "b"]
    a, b = result.means
    assert a.mean == BASE.mean() and a.low < a.mean < a.high
    assert a.iqm == iqm(BASE) and a.iqm_low < a.iqm < a.iqm_high
    assert (b.mean, b.low, b.high) == pytest.approx((2 * a.mean, 2 * a.low, 2 * a.high))


def test_equal_means_keep_the_given_order():
    result = pairwise_tests(scores([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]), seed=0)
    assert (result.best, result.pairs[0].ours, result.pairs[0].verdict) == ("a", "a", "undecided")


def test_units_do_not_matter():
    rows = [BASE, 0.95 * BASE * noise(3)]
    seconds, hours = (
        pairwise_tests(scores(*rows), seed=0).pairs[0],
        pairwise_tests(scores(*(3600 * row for row in rows)), seed=0).pairs[0],
    )
    assert (seconds.low, seconds.high, seconds.p) == pytest.approx((hours.low, hours.high, hours.p))


def test_same_seed_same_result():
    rows = scores(BASE, 0.95 * BASE * noise(3))
    assert pairwise_tests(rows, seed=0) == pairwise_tests(rows, seed=0) != pairwise_tests(rows, seed=1)


def test_one_policy_has_no_pairs():
    result = pairwise_tests(scores(BASE[:9]), seed=0)
    assert (result.pairs, result.best) == ((), "a")
    assert result.notes == (
        "9 windows are few: intervals are rough and only large differences can be significant; use at least 20",
    )


def test_one_window_is_undecided():
    result = pairwise_tests(scores([10.0], [7.6]), seed=0)
    pair = result.pairs[0]
    assert pair.verdict == pair.swapped().verdict == "undecided"
    assert all(math.isnan(value) for value in (pair.low, pair.high, pair.p, pair.p_holm, result.means[0].low))
    assert pair.sentence() == (
        "The difference between b and a in mean bounded slowdown is not significant (24 % lower on average, "
        "no interval; b wins 1 of 1 window)."
    )
    assert "32 % higher on average, no interval" in pair.swapped().sentence()
    assert result.notes == ("1 window is too few: there is no interval and no test; use at least 20",)


def test_unknown_policies():
    result = pairwise_tests(scores(BASE, 2 * BASE), seed=0)
    with pytest.raises(UnknownNameError, match="unknown policy 'c'"):
        result.pair("a", "c")
    with pytest.raises(InputError, match="a cannot be compared with itself"):
        result.pair("a", "a")


def test_plain_data():
    result = pairwise_tests(scores(BASE, 0.7 * BASE * noise(1)), seed=0)
    data = result.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["metric"], data["windows"], data["means"][1]["policy"]) == ("mean_bsld", 60, "b")
    assert data["pairs"][0]["verdict"] == "better"
    assert data["pairs"][0]["sentence"] == result.pairs[0].sentence()


# -- notes ------------------------------------------------------------------------------------------


def test_note_on_few_windows():
    (note,) = pairwise_tests(scores(BASE[:9], 2 * BASE[:9]), seed=0).notes
    assert note.startswith("9 windows are few: intervals are rough")
    (note,) = pairwise_tests(scores(BASE[:5], 2 * BASE[:5]), seed=0).notes
    assert note == "5 windows are few: not even winning all of them would be significant with 1 pair; use at least 20"
    assert pairwise_tests(scores(BASE[:20], 2 * BASE[:20]), seed=0).notes == ()


@pytest.mark.parametrize("policies", [2, 3, 5, 8])
def test_minimum_number_of_windows_for_significance(policies):
    for windows in range(2, 15):
        rows = [factor * BASE[:windows] for factor in range(1, policies + 1)]
        result = pairwise_tests(scores(*rows), seed=0, draws=100)
        too_few_windows = "not even" in result.notes[0]
        assert too_few_windows == all(pair.verdict == "undecided" for pair in result.pairs)


def test_overlapping_windows_give_a_note_and_are_tested_in_blocks():
    separate, overlapping = (pairwise_tests(scores(BASE, 0.9 * BASE * noise(1), overlap=n), seed=0) for n in (1.1, 2.4))
    assert separate.notes == ()
    assert overlapping.notes == (
        "windows overlap, a job is evaluated in 2.4 of them on average: tests use 20 of 60, and intervals, from "
        "blocks of 3, are still slightly too narrow",
    )
    assert overlapping.pairs[0].p > separate.pairs[0].p
    in_blocks = WindowBootstrap(60, random=stream(0, "evaluation.bootstrap"), block=3)
    assert (overlapping.means[0].low, overlapping.means[0].high) == in_blocks.mean(BASE)
    few = pairwise_tests(scores(BASE, 0.9 * BASE, overlap=5), seed=0)
    assert len(few.notes) == 2 and few.notes[1].startswith("12 windows are few")


@pytest.mark.parametrize(("overlap", "block"), [(0.5, 1), (1.0, 1), (1.1, 1), (1.2, 1), (1.21, 2), (2.0, 2), (2.1, 3)])
def test_blocks_follow_the_overlap(overlap, block):
    assert scores(BASE, overlap=overlap).block == block


# -- sentences --------------------------------------------------------------------------------------


def test_sentence_of_a_significant_difference():
    assert example_pair().sentence() == (
        "saf has 24 % lower mean bounded slowdown than sjf (95 % interval 17–30 %; wins 48 of 60 windows)."
    )
    assert example_pair().swapped().sentence() == (
        "sjf has 32 % higher mean bounded slowdown than saf (95 % interval 20–43 %; wins 12 of 60 windows)."
    )


def test_ties_are_in_the_sentence():
    assert example_pair(wins=40, ties=8).sentence().endswith("wins 40 of 60 windows and ties 8).")


def test_sentence_where_more_is_better():
    pair = example_pair(metric="utilization", better="more", ratio=1.05, low=1.018, high=1.09)
    assert pair.sentence() == (
        "saf has 5 % higher utilization while jobs arrive than sjf (95 % interval 1.8–9 %; wins 48 of 60 windows)."
    )
    assert (
        pair.swapped()
        .sentence()
        .startswith("sjf has 5 % lower utilization while jobs arrive than saf (95 % interval 1.8–8 %")
    )


def test_sentence_of_multiples():
    pair = example_pair(ratio=0.42, low=0.3, high=0.55).swapped()
    assert pair.sentence() == (
        "sjf has 2.4 times the mean bounded slowdown of saf (95 % interval 1.8–3.3 times; wins 12 of 60 windows)."
    )


def test_sentence_of_an_insignificant_difference():
    pair = example_pair(verdict="undecided", ratio=0.97, low=0.87, high=1.09, wins=33, losses=27, p_holm=0.4)
    assert pair.sentence() == (
        "The difference between saf and sjf in mean bounded slowdown is not significant (3 % lower on average, "
        "95 % interval 13 % lower to 9 % higher; saf wins 33 of 60 windows)."
    )
    wide = dataclasses.replace(pair, low=0.3, high=4.2)
    assert "95 % interval 70 % lower to 4.2 times as high" in wide.sentence()
    narrow = dataclasses.replace(pair, high=0.99, p_holm=0.083)
    assert narrow.sentence().endswith(
        "13 % lower to 1 % lower; saf wins 33 of 60 windows, but p = 0.083 after Holm correction)."
    )


def test_sentence_of_equal_values():
    pair = example_pair(verdict="same", ratio=1.0, low=1.0, high=1.0)
    assert pair.sentence() == "saf and sjf have the same mean bounded slowdown in all 60 windows."
    assert dataclasses.replace(pair, windows=1).sentence().endswith("in the only window.")


def test_without_a_ratio_the_sentence_gives_differences():
    result = pairwise_tests(scores(0 * BASE, 60 * BASE, metric="mean_wait_s"), seed=0)
    assert result.pair("a", "b").sentence().startswith("a has 100 % lower mean wait than b (95 % interval 100–100 %")
    pair = result.pair("b", "a")
    assert math.isnan(pair.ratio) and pair.verdict == "worse"
    low, high = (
        f"{60 * end:.0f}"
        for end in (
            pairwise_tests(scores(BASE), seed=0).means[0].low,
            pairwise_tests(scores(BASE), seed=0).means[0].high,
        )
    )
    assert pair.sentence() == (
        f"b has {60 * BASE.mean():.0f} s higher mean wait than a (95 % interval {low}–{high} s; wins 0 of 60 windows)."
    )


def test_mean_that_could_be_zero_is_compared_by_differences():
    theirs = np.zeros(30)
    theirs[[4, 20]] = 7.0
    pair = pairwise_tests(scores(np.zeros(30), theirs), seed=0).pairs[0]
    assert math.isnan(pair.ratio) and pair.verdict == "undecided"
    assert pair.sentence().startswith(
        "The difference between a and b in mean bounded slowdown is not significant (0.47 lower on average"
    )
    gain = pairwise_tests(scores(BASE - 100, BASE - 103 * noise(2, 0.001), better="more"), seed=0).pairs[0]
    assert math.isnan(gain.ratio) and (gain.ours, gain.verdict) == ("a", "better")


def test_small_and_large_shares():
    assert "0.62 % lower" in example_pair(ratio=0.9938).sentence()
    assert "under 0.001 % lower" in example_pair(ratio=1 - 1e-9).sentence()
    assert "99.7 % lower" in example_pair(ratio=0.0025).sentence()
    assert "100 % lower" in example_pair(ratio=0.0).sentence()
    assert "equal on average" in example_pair(ratio=1.0, verdict="undecided").sentence()


def test_a_metric_without_a_display_name_uses_its_identifier():
    assert "lower gini_wait than" in example_pair(metric="gini_wait").sentence()


def test_other_levels():
    assert "90 % interval" in example_pair(level=0.9).sentence()


def test_metrics_with_display_names_exist():
    jobs, cluster = kw.lublin(20, 8, seed=0), kw.Cluster.from_nodes(8)
    log = kw.simulate(jobs, cluster, "fcfs", "easy")
    grid, price = Series.constant(400.0, "g/kWh"), Series.constant(0.2, "EUR/kWh")
    energy_metrics = account_energy(
        log, cluster, PowerModel.preset("taurus"), signals=ExternalSignals(carbon=grid, price=price)
    ).metrics()
    on_cores = kw.metrics(kw.simulate(jobs, kw.Cluster.from_processors(32, nodes=8)))
    on_processors = kw.metrics(kw.simulate(jobs, kw.Cluster.from_processors(8)))
    known = {*kw.metrics(log), *on_cores, *on_processors, *kw.fairness(log), *energy_metrics}
    assert set(METRIC_DEFINITIONS) <= known


# -- validation of scores ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("m", (), np.zeros((0, 3))), r"policies \(none\); give at least one"),
        (("m", ("a", "a"), np.ones((2, 3))), "policies a, a; .* each once"),
        (("m", ("a", "b"), np.ones((3, 2))), r"shape \(3, 2\) for 2 policies"),
        (("m", ("a",), np.ones(3)), r"shape \(3,\)"),
        (("m", ("a",), np.ones((1, 0))), "m of 0 windows"),
        (("m", ("a", "b"), [[1.0, 2.0], [1.0, math.nan]]), "m of b in window 1 .* is nan; leave that window out"),
        (("m", ("a",), [[math.inf]]), "is inf"),
        (("m", ("a",), [[1.0]], "smaller"), "better is 'smaller'"),
        (("m", ("a",), [[1.0]], "less", math.nan), "an overlap of nan"),
        (("m", ("a",), [[1.0]], "less", 0.0), "an overlap of 0.0"),
    ],
)
def test_wrong_scores(arguments, message):
    with pytest.raises(InputError, match=message):
        PolicyScores(*arguments)


def test_scores_keep_their_values():
    array = np.ones((1, 3))
    copy = PolicyScores("m", ("a",), array)
    array[0, 0] = 5.0
    assert copy.values[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        copy.values[0, 0] = 2.0


# -- calibration: false-positive rate and power ------------------------------------------------------

TRIALS, WINDOWS, JOBS = 200, 30, 128


@pytest.fixture(scope="module")
def random_scores():
    """Bounded slowdowns of two random policies: trial, policy, window; every trial has other windows."""
    jobs = kw.lublin(TRIALS * WINDOWS * JOBS, 64, load=0.9, seed=1)
    cluster = kw.Cluster.from_nodes(64)
    values = np.empty((TRIALS, 2, WINDOWS))
    for trial in range(TRIALS):
        for number in range(WINDOWS):
            first = (trial * WINDOWS + number) * JOBS
            for policy_number in range(2):
                rule = f"random:seed={2 * trial + policy_number}"
                log = kw.simulate(jobs[first : first + JOBS], cluster, rule, "easy")
                record = log.jobs()
                values[trial, policy_number, number] = np.maximum(
                    1.0, record["turnaround_s"] / np.maximum(record["run_s"], 10.0)
                ).mean()
    return values


def share_better(pairs):
    """The share of pairs of rows in which one policy is significantly better."""
    verdicts = [
        pairwise_tests(scores(*pair), seed=trial, draws=500).pairs[0].verdict for trial, pair in enumerate(pairs)
    ]
    return verdicts.count("better") / len(verdicts)


@pytest.mark.slow
def test_random_policies_are_rarely_significant(random_scores):
    assert share_better(random_scores) <= 0.05
    assert share_better((first, first) for first, _ in random_scores) == 0.0


@pytest.mark.slow
def test_gain_of_ten_percent_is_significant(random_scores):
    random = np.random.default_rng(5)
    sigma = 0.1
    with_gain = [(0.9 * row * random.lognormal(-(sigma**2) / 2, sigma, WINDOWS), row) for row, _ in random_scores]
    assert share_better(with_gain) >= 0.9
    assert all(pairwise_tests(scores(*pair), seed=0, draws=100).best == "a" for pair in with_gain[:20])


def test_overlapping_windows_do_not_raise_false_positives():
    random = np.random.default_rng(6)
    false_positives = {1.0: 0, 3.0: 0}
    for trial in range(TRIALS):
        jobs = random.lognormal(0.0, 0.3, (2, 62))
        rows = [np.convolve(row, np.ones(3) / 3, "valid") for row in jobs]
        for overlap in false_positives:
            result = pairwise_tests(scores(*rows, overlap=overlap), seed=trial, draws=200)
            false_positives[overlap] += result.pairs[0].verdict == "better"
    assert false_positives[3.0] <= 0.05 * TRIALS
    assert false_positives[1.0] > 0.15 * TRIALS  # result if overlapping windows were treated as independent
