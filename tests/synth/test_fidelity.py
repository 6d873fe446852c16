"""Fidelity metrics agree with SciPy, do not separate two halves of one log, and detect planted differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.synth import fit_generator
from kilowait.synth.fidelity import fidelity
from kilowait.synth.fidelity.distances import column_distances, correlations, distance, empirical_distributions
from kilowait.synth.fidelity.job_features import classifier_test
from kilowait.synth.fidelity.workload_statistics import (
    arrival_pattern,
    autocorrelation,
    band_edges_h,
    calendar_correlation,
    profile,
    spectrum,
    user_distributions,
    user_statistics,
)
from tests.synth.test_generator import log


def halves(jobs: JobTable) -> tuple[JobTable, JobTable]:
    """Two logs of the same users and times, with no job in common."""
    return jobs, log(len(jobs), seed=1)


class TestDistances:
    def test_agrees_with_scipy(self):
        real, other = halves(log(400))
        found = {distance.column: distance for distance in column_distances(real, other)}
        assert list(found) == ["interarrival_s", "hour", "nodes", "gpus", "estimate_s", "runtime_s", "energy_j"]
        for name in ("nodes", "estimate_s", "runtime_s"):
            known = stats.ks_2samp(real[name], other[name], method="asymp").statistic
            assert found[name].ks == pytest.approx(known, abs=1e-12)
        energy = [table["energy_j"][np.isfinite(table["energy_j"])] for table in (real, other)]
        assert found["energy_j"].ks == pytest.approx(stats.ks_2samp(*energy, method="asymp").statistic, abs=1e-12)

    def test_wasserstein_distance_is_in_seconds(self):
        real = log(400)
        later = real.with_columns(runtime_s=real["runtime_s"] + 100)
        found = {distance.column: distance for distance in column_distances(real, later)}["runtime_s"]
        assert found.wasserstein == pytest.approx(100)
        assert found.wasserstein_share == pytest.approx(100 / real["runtime_s"].std())


class TestCorrelations:
    def test_agrees_with_scipy(self):
        real = log(400)
        pairs = {(pair.kind, pair.one, pair.other): pair for pair in correlations(real, real)}
        assert all(pair.difference == 0 for pair in pairs.values())
        spearman = stats.spearmanr(real["estimate_s"], real["runtime_s"]).statistic
        assert pairs["spearman", "estimate_s", "runtime_s"].real == pytest.approx(spearman)
        pearson = stats.pearsonr(np.log1p(real["nodes"]), np.log1p(real["runtime_s"])).statistic
        assert pairs["pearson", "nodes", "runtime_s"].real == pytest.approx(pearson)
        table = stats.contingency.crosstab(real["user"], real["nodes"]).count
        cramer = stats.contingency.association(table, method="cramer")
        assert pairs["cramer", "user", "nodes"].real == pytest.approx(cramer)

    def test_shuffled_column_loses_its_correlation(self):
        real = log(400)
        shuffled = real.with_columns(runtime_s=np.random.default_rng(0).permutation(real["runtime_s"]))
        pair = next(
            p
            for p in correlations(real, shuffled)
            if (p.kind, p.one, p.other) == ("spearman", "estimate_s", "runtime_s")
        )
        assert pair.real > 0.5 and abs(pair.synthetic) < 0.15
        assert pair.difference == pair.synthetic - pair.real

    def test_constant_columns_have_correlation_0(self):
        real = log(200, nodes=np.ones(200), status=np.ones(200))
        assert all(p.real == 0 for p in correlations(real, real) if {"nodes", "status"} & {p.one, p.other})


class TestClassifier:
    def test_auc_of_equal_and_of_shuffled_workloads(self):
        real, other = halves(log(1500))
        assert classifier_test(real, other).auc == pytest.approx(0.5, abs=0.05)
        rng = np.random.default_rng(0)
        shuffled = real.with_columns(
            **{name: rng.permutation(real[name]) for name in ("nodes", "estimate_s", "runtime_s")}
        )
        assert classifier_test(real, shuffled).auc > 0.9

    def test_subsampled_rows_keep_their_columns_together(self, monkeypatch):
        monkeypatch.setattr("kilowait.synth.fidelity.job_features.MAX_ROWS", 1000)
        rng = np.random.default_rng(0)
        real = log(8000, runtime_s=rng.uniform(1, 1000, 8000), estimate_s=np.full(8000, 1e6))
        real = real.with_columns(nodes=np.ceil(real["runtime_s"] / 250))  # determined by the run time
        shuffled = real.with_columns(runtime_s=rng.permutation(real["runtime_s"]))
        assert classifier_test(real, shuffled).auc > 0.85

    def test_shuffled_users_are_detected(self):
        real = log(1500)
        rng = np.random.default_rng(0)
        shuffled = real.with_columns(user=rng.permutation(real["user"]))  # the same rows with other users
        assert classifier_test(real, shuffled).auc > 0.55

    def test_queues_are_compared_by_name(self):
        real = log(600)
        renumbered = JobTable(
            labels={**real.labels, "queue": ("long", "short")},
            meta=real.meta,
            **{name: 1 - real[name] if name == "queue" else real[name] for name in real.columns},
        )
        assert classifier_test(real, renumbered).auc < 0.5


class TestPatterns:
    def test_daily_cycle(self):
        pattern = arrival_pattern(log(3000))
        assert pattern["autocorrelation_day"] > 0.4 and pattern["day_power"] > 0.3
        uniform = log(3000, submit_s=np.sort(np.random.default_rng(0).uniform(0, 40 * 86400, 3000)))
        flat = arrival_pattern(uniform)
        assert abs(flat["autocorrelation_day"]) < 0.1 and flat["day_power"] < 0.05
        assert flat["dispersion"] == pytest.approx(1, abs=0.15)

    def test_users(self):
        table = JobTable(
            job_id=[1, 2, 3, 4],
            submit_s=[0, 10, 20, 90_000],
            runtime_s=[5] * 4,
            estimate_s=[60, 60, 300, 60],
            nodes=[1, 2, 1, 1],
            user=[1, 2, 1, 1],
        )
        found = user_statistics(table)
        assert found["users"] == 2 and found["jobs_a_session"] == pytest.approx(4 / 3)
        assert found["same_nodes"] == 1 and found["same_estimate_s"] == 0
        assert found["share_of_busiest_tenth"] == 0.75


def test_fidelity_of_bootstrap_and_copula():
    real = log(400)
    copies = fidelity(real, fit_generator(real, "bootstrap").sample(400))
    mixed = fidelity(real, fit_generator(real, "copula").sample(400))
    assert copies.auc < mixed.auc
    assert copies.worst_ks.ks < 0.2
    assert abs(mixed.worst_pair.difference) > abs(copies.worst_pair.difference) * 0.5
    assert copies.arrivals["autocorrelation_day"][1] > mixed.arrivals["autocorrelation_day"][1]
    assert copies.users["users"][0] == 12


def test_too_few_jobs():
    with pytest.raises(InputError, match="50 jobs are too few to compare workloads; at least 100 are needed"):
        fidelity(log(200), log(50))


class TestCurves:
    def test_largest_gap_of_the_curves_is_the_ks_distance(self):
        rng = np.random.default_rng(0)
        one, other = rng.lognormal(size=3000), rng.lognormal(0.3, 1.2, size=2000)
        found = empirical_distributions(one, other)
        gaps = np.abs(np.subtract(found.real, found.synthetic))
        assert len(found.at) < 170 and np.all(np.diff(found.at) > 0)
        assert gaps.max() == pytest.approx(distance("x", one, other).ks, abs=1e-12)
        assert found.at[int(gaps.argmax())] == found.widest
        assert (found.real[-1], found.synthetic[-1]) == (1, 1)

    def test_autocorrelation_is_that_of_the_pattern(self):
        jobs = log(3000)
        curve, pattern = autocorrelation(jobs, 168), arrival_pattern(jobs)
        assert curve[[0, 23, 167]].tolist() == [pattern[f"autocorrelation_{name}"] for name in ("hour", "day", "week")]

    def test_spectrum_peaks_at_a_day(self):
        parts, edges = spectrum(log(3000)), band_edges_h()
        peak = int(np.nanargmax(parts))
        assert edges[peak] < 24 < edges[peak + 1]
        assert np.nansum(parts) <= 1
        short = spectrum(log(200, submit_s=np.linspace(0, 3 * 86400, 200)))
        assert np.isnan(short[-1]) and np.isfinite(short[0])

    def test_profiles_start_on_monday(self):
        friday = log(100, submit_s=np.full(100, 86400.0 + 3 * 3600))  # the second day of 1970
        assert profile(friday, 7 * 86400.0)[4 * 24 + 3] == 1
        assert profile(friday, 7 * 86400.0, dated=False)[24 + 3] == 1
        assert profile(friday, 86400.0)[3] == 1


class TestCalendar:
    def test_calendar_correlation_of_same_and_other_calendar(self):
        real = log(3000)
        jittered_s = real["submit_s"] + np.random.default_rng(1).uniform(-900, 900, len(real))
        correlation = calendar_correlation(real, real.with_columns(submit_s=np.maximum(jittered_s, 0)).sorted())
        assert correlation > 0.7
        assert abs(calendar_correlation(real, log(3000, seed=1))) < 0.2, "the same weeks, other days"

    def test_no_common_hours(self):
        later = log(200, submit_s=np.linspace(1e8, 1.01e8, 200))
        assert calendar_correlation(log(200), later) is None


def test_feature_importance_names_the_changed_column():
    real = log(800)
    slower = real.with_columns(runtime_s=np.random.default_rng(0).permutation(real["runtime_s"]))
    found = classifier_test(real, slower)
    assert next(iter(found.feature_importance)) in ("used", "runtime_s")
    assert sum(found.feature_importance.values()) == pytest.approx(1)
    assert list(found.feature_importance.values()) == sorted(found.feature_importance.values(), reverse=True)


def test_users_and_sessions():
    table = JobTable(
        job_id=[1, 2, 3, 4, 5],
        submit_s=[0, 600, 1200, 90_000, 90_060],
        runtime_s=[5] * 5,
        nodes=[1] * 5,
        user=[1, 1, 2, 1, 1],
    )
    found = user_distributions(table)
    assert found["jobs_a_user"].tolist() == [4, 1]
    assert sorted(found["jobs_a_session"].tolist()) == [1, 2, 2]
    assert found["user_gap_s"].tolist() == [600, 89_400, 60]


def test_without_users_there_are_no_user_statistics():
    found = fidelity(log(200, user=None), log(200, seed=1))
    assert found.users == {} and found.user_distances == ()
