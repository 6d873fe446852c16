"""Privacy metrics: planted copies are detected, independent jobs of the same distribution are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth.privacy_metrics import (
    anonymity,
    anonymity_by_k,
    distance_auc,
    membership_inference_advantage,
    privacy_metrics,
    record_distances,
    roc,
)
from tests.synth.test_generator import log

SEEN, HELD_OUT, FRESH = (log(800, seed=seed) for seed in (0, 1, 2))


def test_independent_jobs_exceed_no_metric():
    found = privacy_metrics(FRESH, SEEN, HELD_OUT)
    assert found.nearer_to_seen == pytest.approx(0.5, abs=0.05)
    assert found.membership_advantage < 0.08
    assert found.membership_auc == pytest.approx(0.5, abs=0.05)
    assert found.copies == pytest.approx(found.copies_of_held_out, abs=0.03)
    assert found.copied_pairs < 0.02
    assert found.exceeded == ()


def test_copied_log_exceeds_all_metrics():
    found = privacy_metrics(SEEN.with_columns(submit_s=SEEN["submit_s"] + 7 * 86400), SEEN, HELD_OUT)
    assert found.copies == 1 and found.copied_pairs == 1
    assert found.copies_of_held_out < 0.3 and found.copied_pairs_of_held_out < 0.05
    assert found.nearer_to_seen > 0.85
    assert found.membership_advantage > 0.8 and found.membership_auc > 0.9
    assert found.closest_seen == 0 < found.closest_held_out
    assert found.exceeded == ("copies", "copied_pairs", "nearer_to_seen", "membership_advantage")


def test_blurred_copies_are_detected():
    """Jobs near their originals are not counted as copies, but the distances reveal them."""
    rng = np.random.default_rng(0)
    blurred = SEEN.with_columns(runtime_s=SEEN["runtime_s"] + rng.choice([-1.0, 1.0], len(SEEN)))
    found = privacy_metrics(blurred.with_columns(runtime_s=np.maximum(blurred["runtime_s"], 0.5)), SEEN, HELD_OUT)
    assert found.copies < 0.5
    assert found.nearer_to_seen > 0.7 and found.membership_auc > 0.8


def test_partial_copies_raise_the_share_of_copies():
    rows = {name: FRESH[name].copy() for name in FRESH.columns if name != "job_id"}
    for name in rows:
        if name != "submit_s":
            rows[name][::3] = SEEN[name][::3]
    found = privacy_metrics(FRESH.with_columns(**rows), SEEN, HELD_OUT)
    fresh = privacy_metrics(FRESH, SEEN, HELD_OUT)
    assert found.copies == pytest.approx(1 / 3 + fresh.copies * 2 / 3, abs=0.03)
    assert 0.15 < found.membership_advantage < 0.5


def test_queues_are_compared_by_name():
    renumbered = JobTable(
        labels={**SEEN.labels, "queue": ("long", "short")},
        **{name: 1 - SEEN[name] if name == "queue" else SEEN[name] for name in SEEN.columns},
    )
    assert privacy_metrics(renumbered, SEEN, HELD_OUT).copies == 1


def test_too_few_jobs():
    with pytest.raises(InputError, match="20 jobs are too few to compare workloads; at least 50 are needed"):
        privacy_metrics(log(20), SEEN, HELD_OUT)


class TestAnonymity:
    def test_class_size_is_the_number_of_users(self):
        table = JobTable(
            job_id=np.arange(6),
            submit_s=np.arange(6),
            runtime_s=[1] * 6,
            nodes=[4, 4, 4, 8, 8, 8],
            user=[1, 2, 3, 1, 1, 1],
        )
        found = anonymity(table, known=["nodes"], k=3)
        assert found.jobs_below == 0.5 and found.smallest == 1

    def test_default_quasi_identifiers(self):
        assert anonymity(SEEN).known == ("nodes", "gpus", "estimate_s", "queue", "hour")
        assert anonymity(SEEN, known=["queue"]).jobs_below == 0

    def test_for_several_k(self):
        found = anonymity_by_k(SEEN, (2, 5))
        assert found == {k: anonymity(SEEN, k=k).jobs_below for k in (2, 5)}

    def test_errors(self):
        with pytest.raises(UnknownNameError, match="unknown quasi-identifier column 'node'; did you mean 'nodes'"):
            anonymity(SEEN, known=["node"])
        with pytest.raises(InputError, match="k is 0; it must be at least 1"):
            anonymity(SEEN, k=0)


def test_agrees_with_pairwise_distances():
    """Compared with all pairwise distances of sizes and run times."""
    missing_columns = dict.fromkeys(("user", "account", "energy_j", "queue", "gpus", "status"))
    synthetic, seen, held_out = (log(80, seed=seed).with_columns(**missing_columns) for seed in (2, 0, 1))
    names = ("nodes", "estimate_s", "runtime_s")
    scale = np.array([np.log1p(seen[name]).std() for name in names])
    points = [
        np.column_stack([np.log1p(table[name]) for name in names]) / scale for table in (synthetic, seen, held_out)
    ]
    found = record_distances(synthetic, seen, held_out)
    assert found.synthetic_to_seen == pytest.approx(cdist(points[0], points[1]).min(axis=1))
    assert found.held_out_to_seen == pytest.approx(cdist(points[2], points[1]).min(axis=1))
    assert found.seen_to_synthetic == pytest.approx(cdist(points[1], points[0]).min(axis=1))


def test_copies_have_distance_0():
    seen = log(200)
    found = record_distances(seen, seen, log(200, seed=1))
    assert not found.synthetic_to_seen.any() and found.held_out_to_seen.any()
    curves = found.shares()
    assert set(curves["synthetic_to_seen"]) == {1.0}
    assert list(curves["held_out_to_seen"]) == sorted(curves["held_out_to_seen"])
    assert curves["at"][0] == 0


def test_roc_curve_agrees_with_advantage_and_auc():
    rng = np.random.default_rng(0)
    near, far = rng.exponential(1, 4000), rng.exponential(2, 3000)
    curve = roc(near, far)
    assert curve.best[1] - curve.best[0] == pytest.approx(membership_inference_advantage(near, far))
    assert np.max(np.subtract(curve.true_positive_rate, curve.false_positive_rate)) == pytest.approx(
        membership_inference_advantage(near, far)
    )
    assert np.trapezoid(curve.true_positive_rate, curve.false_positive_rate) == pytest.approx(
        distance_auc(near, far), abs=2e-3
    )
    assert (curve.true_positive_rate[0], curve.true_positive_rate[-1], curve.false_positive_rate[-1]) == (0, 1, 1)
