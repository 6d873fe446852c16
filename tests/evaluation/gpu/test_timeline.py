from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.evaluation import gpu_metrics, gpu_timeline
from kilowait.evaluation.timeline import cumulative_steps, gpu_backlog, usage_changes
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.gpu.example_logs import SEEDS, node_level_log, preempted_run, random_run


def test_gpus_in_use_by_type():
    log, cluster, _ = preempted_run()
    used = gpu_timeline(log, cluster)
    assert list(used) == ["V100", "T4"]
    assert used["V100"].edge_s.tolist() == [0, 10, 18, 44]
    assert used["V100"].value.tolist() == [2, 0.5, 0]
    assert used["T4"].edge_s.tolist() == [0, 14, 44]
    assert used["T4"].value.tolist() == [0, 2]
    assert used["T4"].unit == "GPUs"


def test_gpus_in_use_over_a_horizon():
    log, cluster, _ = preempted_run()
    used = gpu_timeline(log, cluster, horizon_s=(12, 50))
    assert used["V100"].edge_s.tolist() == [12, 18, 50]
    assert used["T4"].value.tolist() == [0, 2, 0]


def test_run_without_a_timeline():
    log, cluster, _ = preempted_run()
    with pytest.raises(InputError, match="no timeline"):
        gpu_timeline(node_level_log(cluster, log.jobs_table), cluster)
    assert gpu_timeline(node_level_log(cluster, log.jobs_table), cluster, horizon_s=(0, 1))["T4"].value.tolist() == [0]


def test_steps_of_one_instant_are_merged():
    time, change = np.array([3.0, 1.0, 3.0, 3.0]), np.array([2, 1, -2, -1])
    series = cumulative_steps(time, change, 10, (0.0, 5.0))
    assert series.edge_s.tolist() == [0, 1, 3, 5]
    assert series.value.tolist() == [10, 11, 10]
    assert cumulative_steps(time, change, 10, (1.0, 3.0)).value.tolist() == [11]
    assert cumulative_steps(time, change, 10, (8.0, 9.0)).value.tolist() == [10]
    assert cumulative_steps(time[:0], change[:0], 10, (8.0, 9.0)).value.tolist() == [10]


def test_units_in_use():
    unit = np.array([5, 5, 5, 9, 9, 5])
    start, end = np.array([0.0, 2.0, 6.0, 1.0, 3.0, 8.0]), np.array([4.0, 6.0, 7.0, 3.0, 3.0, 8.0])
    time, change = usage_changes(unit, start, end)
    assert time.tolist() == [0, 7, 1, 3]  # no gap between adjacent uses; zero-length uses are ignored
    assert change.tolist() == [1, -1, 1, -1]
    time, change = usage_changes(unit, start, end, least=2)
    assert (time.tolist(), change.tolist()) == ([2, 4], [1, -1])
    assert len(usage_changes(unit[:0], start[:0], end[:0])[0]) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_lines_stay_within_the_capacity_and_add_up(seed):
    log, cluster, speeds = random_run(seed)
    lines = gpu_timeline(log, cluster)
    total = 0.0
    for name, line in lines.items():
        gpus = sum(group.nodes * group.gpus for group in cluster.groups if group.gpu_type == name)
        assert line.value.min() >= 0 and line.value.max() <= gpus
        total += float(line.integral(line.start_s, line.end_s))
    assert total / 3600 == pytest.approx(gpu_metrics(log, cluster, speeds)["gpu_hours"])


def test_gpus_requested_by_waiting_jobs():
    """The first job waits again from 10 s to 14 s for two GPUs."""
    log, cluster, _ = preempted_run()
    backlog = gpu_backlog(log, cluster)
    assert (backlog.edge_s.tolist(), backlog.value.tolist()) == ([0, 10, 14, 44], [0, 2, 0])


@pytest.mark.parametrize("seed", SEEDS)
def test_backlog_in_gpus_adds_up(seed):
    """Its integral is the sum of waits times GPUs over all jobs."""
    log, cluster, _ = random_run(seed)
    table = log.jobs_table
    end = float(log.end_s.max())
    gpus = table["gpus"] * table["gpu_milli"] / 1000
    waited_s = np.nan_to_num(log.jobs()["wait_s"])
    never = np.isnan(log.jobs()["start_s"]) & ~np.isnan(log.eligible_s)
    waited_s[never] = np.minimum(table["cancel_s"][never], end) - log.eligible_s[never]
    preempted_unfinished = (log.job_outcome == Outcome.UNSTARTED) & ~np.isnan(log.jobs()["start_s"])
    assert not preempted_unfinished.any()
    backlog = gpu_backlog(log, cluster)
    assert float(backlog.integral(backlog.edge_s[0], end)) == pytest.approx(float(gpus @ np.maximum(waited_s, 0)))
