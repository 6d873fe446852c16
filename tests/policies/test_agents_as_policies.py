"""An agent is a policy: whatever brings a rule goes through the same door."""

from __future__ import annotations

import numpy as np

import kilowait as kw
from kilowait.policies import resolve


class Stubborn:
    rule = resolve("ljf")


def test_whatever_brings_a_rule_is_a_policy() -> None:
    jobs = kw.lublin(300, 64, load=0.9, seed=3)
    cluster = kw.Cluster.from_nodes(64)
    own = kw.simulate(jobs, cluster, Stubborn(), "easy").jobs()["start_s"]
    assert np.array_equal(own, kw.simulate(jobs, cluster, "ljf", "easy").jobs()["start_s"])


def test_an_empty_table_gives_an_empty_log() -> None:
    nobody = kw.lublin(5, 64, load=0.9, seed=3)[:0]
    log = kw.simulate(nobody, kw.Cluster.from_nodes(64), "sjf", "easy")
    assert len(log) == 0
    assert kw.metrics(log)["jobs"] == 0
