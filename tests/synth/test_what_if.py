"""What-if changes, alone and combined, and their errors; test_generator tests them for all generators."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth import WhatIf, fit_generator, lublin, offered_load
from kilowait.synth.log_schema import log_schema
from kilowait.synth.what_if import WorkloadChanges, parse_changes, scaled_job_sizes
from tests.synth.test_generator import TABLES, log

QUICK = {**TABLES, "transformer": {"passes": 1.0, "width": 16, "layers": 1, "draws": 1, "frequent_jobs": 4}}
"""Settings for fast fits and samples."""
KINDS = ("bootstrap", "copula", "transformer")
"""Generators tested here: copies, independent jobs, and users with repeated jobs."""


@pytest.fixture(scope="module")
def fitted():
    """Each generator, fitted once to a log with an offered load of about a third."""
    return {name: fit_generator(log(), name, seed=3, **QUICK.get(name, {})) for name in KINDS}


def work(table: JobTable) -> np.ndarray:
    return table["nodes"] * table["runtime_s"]


def jobs_per_day(table: JobTable, selected: np.ndarray) -> float:
    """Selected jobs per day."""
    return selected.sum() / np.ptp(table["submit_s"]) * 86400


@pytest.mark.parametrize("name", KINDS)
class TestChanges:
    @pytest.mark.parametrize("load", [0.1, 0.9])
    def test_load_is_met_and_hours_are_kept(self, fitted, name, load):
        sample = fitted[name].sample(500, seed=1, what_if=WhatIf(load=load))
        assert len(sample) == 500
        assert offered_load(sample, 64) == pytest.approx(load, rel=1e-3)
        if name != "copula":  # has no daily cycle
            hours = sample["submit_s"] // 3600 % 24
            assert ((hours >= 7) & (hours < 19)).mean() > 0.95

    def test_more_large_jobs_and_fewer_small_ones(self, fitted, name):
        before = fitted[name].sample(days=120, seed=1)
        after = fitted[name].sample(days=120, seed=1, what_if=WhatIf(job_mix={"nodes": {(1, 2): 0.5, 64: 2}}))
        for least, most, factor in ((1, 2, 0.5), (4, 16, 1.0), (64, 64, 2.0)):
            rates = [
                jobs_per_day(table, (table["nodes"] >= least) & (table["nodes"] <= most)) for table in (before, after)
            ]
            assert rates[1] / rates[0] == pytest.approx(factor, rel=0.15), (least, most)

    def test_shares(self, fitted, name):
        sample = fitted[name].sample(2000, seed=1, what_if=WhatIf(job_mix={"nodes": {1: "50%", (2, 4): "10%"}}))
        assert (sample["nodes"] == 1).mean() == pytest.approx(0.5, abs=0.03)
        assert np.isin(sample["nodes"], [2, 4]).mean() == pytest.approx(0.1, abs=0.02)

    def test_scaled_queue(self, fitted, name):
        before, after = (
            fitted[name].sample(days=120, seed=1, what_if=WhatIf(scale_jobs=grow))
            for grow in ({}, {"queue": {"long": 3}})
        )
        rates = [[jobs_per_day(table, table["queue"] == queue) for queue in (0, 1)] for table in (before, after)]
        assert rates[1][1] / rates[0][1] == pytest.approx(3, rel=0.2)
        assert rates[1][0] / rates[0][0] == pytest.approx(1, rel=0.1)

    def test_days_longer_than_the_log(self, fitted, name):
        real, sample = log(), fitted[name].sample(days=200, seed=4)
        assert 190 < np.ptp(sample["submit_s"]) / 86400 <= 200
        assert sample["submit_s"].min() >= real["submit_s"].min()
        assert len(sample) / 200 == pytest.approx(len(real) / 40, rel=0.15)

    def test_another_machine(self, fitted, name):
        same_machine, sample = (fitted[name].sample(800, seed=1, what_if=WhatIf(nodes=nodes)) for nodes in (64, 256))
        assert sample.meta["max_procs"] == 256
        assert set(sample["nodes"].tolist()) <= {1, 2, 8, 32, 256} and sample["nodes"].max() == 256
        assert offered_load(sample, 256) == pytest.approx(offered_load(same_machine, 64), rel=0.1)
        assert (sample["gpus"] % sample["nodes"] == 0).mean() > 0.5
        known = np.isfinite(sample["energy_j"]) & (work(sample) > 0)
        if name != "copula":  # correlates energy with sizes only by rank
            assert 290 < np.median(sample["energy_j"][known] / work(sample)[known]) < 320

    def test_parts_equal_the_complete_sample(self, fitted, name):
        what = WhatIf(load=0.3, job_mix={"nodes": {64: 2}}, scale_jobs={"user": {1: 0.5}})
        parts = list(fitted[name].tables(200, seed=5, conditions={"hour": (8, 16)}, what_if=what))
        complete = fitted[name].sample(
            200,
            seed=5,
            conditions={"hour": (8, 16)},
            what_if=WhatIf(load=0.3, job_mix=what.job_mix, scale_jobs=what.scale_jobs),
        )
        assert sum(map(len, parts)) == 200
        for column in ("job_id", "submit_s", "nodes", "runtime_s", "user"):
            assert np.array_equal(np.concatenate([part[column] for part in parts]), complete[column])

    def test_all_at_once(self, fitted, name):
        sample = fitted[name].sample(
            days=14,
            seed=2,
            conditions={"queue": "short"},
            what_if=WhatIf(load=0.2, job_mix={"nodes": {(1, 2): 2}}, scale_jobs={"user": {1: 0}}, nodes=128),
        )
        assert offered_load(sample, 128) == pytest.approx(0.2, rel=1e-3)
        assert set(sample["queue"].tolist()) == {0} and sample["nodes"].max() == 128
        assert 11 < np.ptp(sample["submit_s"]) / 86400 < 15


class TestGroupScaling:
    def test_users_are_ranked_by_node_seconds(self):
        real = log()
        volume = np.bincount(real["user"], work(real))
        sample = fit_generator(real, "bootstrap", keep_names=True).sample(
            2000, what_if=WhatIf(scale_jobs={"user": {"anna3": 0}})
        )
        assert 3 not in sample["user"] and 4 in sample["user"]
        ranked = fit_generator(real, "bootstrap")
        before, after = (ranked.sample(days=400, what_if=WhatIf(scale_jobs=grow)) for grow in ({}, {"user": {1: 4}}))
        largest = volume.max() / volume.sum()
        gain = work(after).sum() / work(before).sum() - 1
        assert gain == pytest.approx(3 * largest, rel=0.15)
        assert gain > 1.15 * 3 * np.sort(volume)[-2] / volume.sum() or np.sort(volume)[-2] > 0.8 * volume.max()

    def test_accounts(self):
        sample = fit_generator(log(), "bootstrap").sample(
            2000, what_if=WhatIf(scale_jobs={"account": {1: 0, 2: 0, 3: 0}})
        )
        assert len(set(sample["account"].tolist())) == 1

    @pytest.mark.parametrize(
        ("grow", "message"),
        [
            ({"queue": {"lang": 2}}, "unknown queue 'lang'; did you mean 'long'"),
            ({"user": {13: 2}}, r"group scaling user=13: names were not kept.* rank, 1 .* to 12; fit with keep_names"),
            ({"user": {"anna": 2}}, "group scaling user=anna: names were not kept"),
            ({"nodes": {4: 2}}, r"unknown column of group scaling \(use a job mix for others\) 'nodes'"),
            ({"queue": {"long": -1}}, "group scaling queue=long: the factor is -1; it must be a number, 0 or more"),
            ({"queue": {"long": 1000}}, "this needs 1,000 superposed copies of the workload, and the maximum is 64"),
        ],
    )
    def test_invalid_groups(self, fitted, grow, message):
        with pytest.raises((InputError, UnknownNameError), match=message):
            fitted["bootstrap"].sample(10, what_if=WhatIf(scale_jobs=grow))

    def test_groups_by_name(self):
        generator = fit_generator(log(), "bootstrap", keep_names=True)
        with pytest.raises(UnknownNameError, match="unknown user 'ana3'; did you mean 'anna"):
            generator.sample(10, what_if=WhatIf(scale_jobs={"user": {"ana3": 2}}))
        with pytest.raises(InputError, match="group scaling account=9: no job of the log has that account"):
            generator.sample(10, what_if=WhatIf(scale_jobs={"account": {9: 2}}))

    def test_log_without_users(self):
        generator = fit_generator(lublin(200, 64, seed=1), "bootstrap")
        if "user" not in generator.schema.columns:
            with pytest.raises(InputError, match="group scaling user=1: the log has no column user"):
                generator.sample(10, what_if=WhatIf(scale_jobs={"user": {1: 2}}))
        with pytest.raises(InputError, match="group scaling account=1: the log has no column account"):
            generator.sample(10, what_if=WhatIf(scale_jobs={"account": {1: 2}}))


class TestLoads:
    def test_load_too_high(self, fitted):
        message = (
            "a load of 3 is 3 times the machine's capacity, so that the queue would grow without bound; use 1.5 at most"
        )
        with pytest.raises(InputError, match=message):
            fitted["bootstrap"].sample(100, what_if=WhatIf(load=3))

    def test_warning_above_load_1(self, fitted):
        with pytest.warns(UserWarning, match=r"a load of 1.2 exceeds the machine's capacity"):
            sample = fitted["bootstrap"].sample(400, what_if=WhatIf(load=1.2))
        assert offered_load(sample, 64) == pytest.approx(1.2, rel=1e-3)

    def test_no_warning_up_to_load_1(self, fitted):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted["bootstrap"].sample(100, what_if=WhatIf(load=1))

    @pytest.mark.parametrize("load", [0, -1, float("nan")])
    def test_invalid_load(self, fitted, load):
        with pytest.raises(InputError, match="the load is .*; it must be a finite number above 0"):
            fitted["bootstrap"].sample(100, what_if=WhatIf(load=load))

    def test_load_of_one_job(self, fitted):
        with pytest.raises(InputError, match=r"1 job\(s\) have no offered load"):
            fitted["bootstrap"].sample(1, what_if=WhatIf(load=0.5))

    def test_load_of_jobs_without_run_time(self):
        generator = fit_generator(log(150, runtime_s=np.zeros(150)), "bootstrap")
        with pytest.raises(InputError, match="no run time, so that their load is always 0"):
            generator.sample(100, what_if=WhatIf(load=0.5))

    def test_load_on_another_cluster(self, fitted):
        sample = fitted["bootstrap"].sample(500, cluster=Cluster.from_nodes(200), what_if=WhatIf(load=0.6))
        assert offered_load(sample, 200) == pytest.approx(0.6, rel=1e-3)

    def test_load_in_gpus(self, fitted):
        machine = Cluster.preset("gpu-mixed")
        sample = fitted["bootstrap"].sample(500, cluster=machine, what_if=WhatIf(load=0.6))
        offered = (sample["gpus"] * sample["runtime_s"]).sum() / np.ptp(sample["submit_s"])
        gpus = sum(group.nodes * group.gpus for group in machine.groups)
        assert offered / gpus == pytest.approx(0.6, rel=1e-3)
        without = fit_generator(log(gpus=None), "bootstrap")
        with pytest.raises(InputError, match="these jobs have no column 'gpus'"):
            without.sample(500, cluster=machine, what_if=WhatIf(load=0.6))


class TestJobMix:
    @pytest.mark.parametrize(
        ("mix", "message"),
        [
            (
                {"nodes": {(65, 128): 2}},
                "job mix nodes=65:128: no job of the log matches; its values are 1, 2, 4, 16, 64",
            ),
            ({"nods": {1: 2}}, "unknown job mix 'nods'; did you mean 'nodes'"),
            ({"nodes": {1: "60%", 2: "60%"}}, "the shares of the job mix sum to 120%; they must be 100% at most"),
            ({"nodes": {1: "60%", 2: 2}}, "shares of the job mix must be of one column, for all of its groups"),
            (
                {"nodes": {1: "60%"}, "queue": {"long": "10%"}},
                "shares of the job mix must be of one column, for all of its groups",
            ),
            ({"nodes": {1: "some%"}}, "job mix nodes=1: the share is some%; write one from 0% to 100%"),
            ({"nodes": {(1, 64): "50%"}}, "the shares of the job mix sum to 50% and there are no other jobs"),
            ({"nodes": {1: float("inf")}}, "job mix nodes=1: the factor is inf"),
            (
                {"nodes": {(1, 64): 0}},
                r"job mix nodes=1:64: 0 of [\d,]+ sampled jobs match them all, and 10 are requested",
            ),
        ],
    )
    def test_invalid_mix(self, fitted, mix, message):
        with pytest.raises((InputError, UnknownNameError), match=message):
            fitted["bootstrap"].sample(10, what_if=WhatIf(job_mix=mix))

    def test_mix_of_groups_excluded_by_conditions(self, fitted):
        with pytest.raises(InputError, match=r"job mix nodes=64: none of [\d,]+ sampled jobs matches"):
            fitted["bootstrap"].sample(10, conditions={"nodes": (1, 4)}, what_if=WhatIf(job_mix={"nodes": {64: "10%"}}))

    def test_first_matching_factor_applies(self):
        changes = WorkloadChanges(WhatIf(job_mix={"nodes": {1: 5, (1, 4): 0.5}}), log_schema(log()))
        rows = {"submit_s": np.zeros(3), "nodes": np.array([1, 4, 16])}
        assert changes.weights(None).of(rows).tolist() == [5, 0.5, 1]

    def test_parse_changes(self):
        assert parse_changes("nodes=1:4*.5, queue=a*2,b*3", "job mix") == {
            "nodes": {(1.0, 4.0): 0.5},
            "queue": {"a": 2.0, "b": 3.0},
        }
        for text in ("nodes", "nodes=1:4", "1:4*2", "nodes=a:4*2", "nodes=1*x", "nodes=*2", "nodes=1=0.3"):
            with pytest.raises(InputError, match="the job mix has .*; write column=value"):
                parse_changes(text, "job mix")
        with pytest.raises(InputError, match="the group scaling has 'queue'; write column=name"):
            parse_changes("queue", "group scaling")


class TestMachines:
    @pytest.mark.parametrize("nodes", [0, -4, 1.5])
    def test_invalid_number_of_nodes(self, fitted, nodes):
        with pytest.raises(InputError, match=r"the machine's nodes are .*; give a whole number of at least 1"):
            fitted["bootstrap"].sample(10, what_if=WhatIf(nodes=nodes))

    def test_of_one_node(self, fitted):
        assert set(fitted["bootstrap"].sample(50, what_if=WhatIf(nodes=1))["nodes"].tolist()) == {1}

    def test_cluster_and_nodes_together(self, fitted):
        with pytest.raises(InputError, match="a cluster and a number of nodes are given"):
            fitted["bootstrap"].sample(10, cluster=Cluster.from_nodes(64), what_if=WhatIf(nodes=128))

    @given(st.sets(st.integers(1, 1024), min_size=1, max_size=40), st.integers(1, 5000), st.booleans())
    def test_sizes(self, sizes, new, serial):
        seen = np.array(sorted({1, *sizes} if serial else sizes))
        old = int(seen[-1])
        scaled = scaled_job_sizes(seen, old, new)
        assert scaled.min() >= 1 and scaled.max() <= new
        assert scaled[-1] == new or old == 1 == seen[0]
        if serial:
            assert scaled[0] == 1 or old == 1
        powers = (seen & (seen - 1) == 0) & (seen < old)
        assert (scaled[powers] & (scaled[powers] - 1) == 0).all()
        assert (np.diff(scaled[powers]) >= 0).all() and (np.diff(scaled[~powers]) >= 0).all()

    def test_same_machine_keeps_sizes(self, fitted):
        assert scaled_job_sizes([1, 3, 7, 64], 64, 64).tolist() == [1, 3, 7, 64]


class TestDays:
    @pytest.mark.parametrize("days", [0, -1, float("nan"), float("inf")])
    def test_invalid_days(self, fitted, days):
        with pytest.raises(InputError, match="the number of days is .*; it must be above 0"):
            fitted["bootstrap"].sample(days=days)

    def test_exactly_one_of_jobs_and_days(self, fitted):
        with pytest.raises(InputError, match="both of jobs and days are given"):
            fitted["bootstrap"].sample(10, days=10)
        with pytest.raises(InputError, match="neither of jobs and days are given"):
            fitted["bootstrap"].sample()

    def test_no_matching_jobs(self, fitted):
        with pytest.raises(InputError, match=r"conditions hour=3: 0 of \d+ sampled jobs match them all in 9 days"):
            fitted["bootstrap"].sample(days=9, conditions={"hour": 3})

    def test_year_from_a_month_has_no_copied_weeks(self, fitted):
        month = log(400, submit_s=np.sort(log(400)["submit_s"] % (30 * 86400)))
        generator = fit_generator(month, "transformer", passes=1, width=16, layers=1)
        year = generator.sample(days=364, seed=1)
        weekly = np.bincount((year["submit_s"] // (7 * 86400)).astype(int), minlength=52)
        assert (weekly > 0).all()  # no gap between turns
        assert len(year) / 364 == pytest.approx(400 / 30, rel=0.15)
        hours = year["submit_s"] // 3600 % 24
        assert ((hours >= 7) & (hours < 19)).mean() > 0.95
        jobs = np.stack([year[name] for name in ("user", "nodes", "estimate_s", "runtime_s")])
        weeks = [jobs[:, year["submit_s"] // (7 * 86400) == week] for week in range(4, 52)]
        assert len({week.tobytes() for week in weeks}) == 48
        assert len(set(weekly[:26].tolist())) > 1


def test_short_samples_start_after_the_first_submission(fitted):
    for name in KINDS:
        for seed in range(5):
            sample = fitted[name].sample(50, seed=seed)
            assert sample["submit_s"].min() >= log()["submit_s"].min(), name
