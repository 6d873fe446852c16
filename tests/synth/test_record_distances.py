"""Distances to the closest record: 0 for equal jobs; curves agree with the metrics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kilowait.synth.record_distances import distance_auc, membership_inference_advantage, record_distances, roc
from tests.synth.test_generator import log


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
