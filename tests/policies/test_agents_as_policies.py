"""Every kind of policy enters `simulate` and `compare` through the policy protocol."""

from __future__ import annotations

import numpy as np

import kilowait as kw
from kilowait.engine.policy import run_priority_policy
from kilowait.policies import resolve


class LongestFirst:
    """A user-defined policy: a name and a method `run`."""

    name = "mine"

    def run(self, inputs):
        return run_priority_policy(resolve("ljf"), inputs)


def test_an_object_with_name_and_run_is_a_policy() -> None:
    jobs = kw.lublin(300, 64, load=0.9, seed=3)
    cluster = kw.Cluster.from_nodes(64)
    own = kw.simulate(jobs, cluster, LongestFirst(), "easy").jobs()["start_s"]
    assert np.array_equal(own, kw.simulate(jobs, cluster, "ljf", "easy").jobs()["start_s"])


def test_an_empty_table_gives_an_empty_log() -> None:
    nobody = kw.lublin(5, 64, load=0.9, seed=3)[:0]
    log = kw.simulate(nobody, kw.Cluster.from_nodes(64), "sjf", "easy")
    assert len(log) == 0
    assert kw.metrics(log)["jobs"] == 0
