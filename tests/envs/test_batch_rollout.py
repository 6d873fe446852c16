"""Whole runs with decisions from observations."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, Outage
from kilowait.engine.settings import Settings
from kilowait.envs.batch_env import DecisionSettings, run_policy
from kilowait.envs.observation_spec import FEATURES
from tests.envs.workloads import crowded, decided_by

AREA = list(FEATURES).index("area")
LENGTH = list(FEATURES).index("length")


@pytest.mark.parametrize("seed", range(4))
def test_saf_from_observations_matches_saf(seed):
    jobs, machine = crowded(120, seed), Cluster.from_nodes(16)
    log = run_policy(
        jobs,
        machine,
        decided_by(lambda rows: rows[:, AREA]),
        decision_settings=DecisionSettings(backfill_order="agent", queue_window=64),
    )
    engine_log = kw.simulate(jobs, machine, "saf", "easy")
    areas = np.float32(np.log1p(jobs["estimate_s"] * jobs["nodes"] / (16 * 3600)) / 3)
    assert len(np.unique(areas)) == len(np.unique(jobs["estimate_s"] * jobs["nodes"]))  # no ties by rounding
    assert np.array_equal(log.jobs()["start_s"], engine_log.jobs()["start_s"])
    assert log.run["policy"] == "agent"


def test_outages_dependencies_and_cancellations_are_simulated():
    jobs = crowded(80, 5)
    n = len(jobs)
    after = np.full(n, -1)
    after[10::7] = jobs["job_id"][3 : 3 + len(after[10::7])]
    jobs = jobs.with_columns(
        after_id=after,
        think_s=np.full(n, 5.0),
        cancel_s=np.where(np.arange(n) % 9 == 4, jobs["submit_s"] + 100, np.inf),
    )
    machine = Cluster.from_nodes(16)
    machine = Cluster(groups=machine.groups, outages=[Outage(machine.groups[0].name, start_s=300, end_s=900, nodes=6)])
    log = run_policy(
        jobs,
        machine,
        decided_by(lambda rows: rows[:, LENGTH]),
        decision_settings=DecisionSettings(backfill_order="agent", queue_window=96),
        settings=Settings("easy"),
    )
    engine_log = kw.simulate(jobs, machine, "sjf", "easy")
    assert np.array_equal(log.jobs()["start_s"], engine_log.jobs()["start_s"], equal_nan=True)
    assert (log.job_outcome == engine_log.job_outcome).all() and len(np.unique(engine_log.job_outcome)) > 1
