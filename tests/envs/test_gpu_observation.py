"""Values of the observation of `kilowait/Gpu-v0`."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import constant_speeds
from tests.envs.gpu_workloads import gpu_env

TWO = Cluster(
    [
        NodeGroup("a100", 1, 16, gpus=4, gpu_type="A100", node_level=True),
        NodeGroup("t4", 2, 8, gpus=2, gpu_type="T4", node_level=True),
    ]
)


def rows_of(vec, observation):
    return [dict(zip(vec.observation_spec.features, row.tolist(), strict=True)) for row in observation["jobs"][0]]


def test_features_mask_and_summary():
    jobs = kw.JobTable(
        job_id=[1, 2, 3, 4],
        submit_s=[0, 0, 3600, 7200],
        runtime_s=[36000, 36000, 600, 600],
        estimate_s=[36000, 18000, 3600, 1800],
        nodes=[1, 1, 1, 1],
        gpus=[3, 1, 2, 1],
        gpu_milli=[1000, 500, 1000, 250],
        cores=[1, 1, 4, 2],
        priority=[0, 0, 3, -1],
        gpu_types=[0, 0, -1, 0],
        labels={"gpu_types": ("A100",)},
    )
    speeds = constant_speeds(jobs, ("A100", "T4"), {"A100": 1.0, "T4": 0.25})
    vec = gpu_env(jobs, cluster=TWO, episode_jobs=4, queue_window=4, hold=True, preempt=True, victims=2, speeds=speeds)
    observation, _ = vec.reset()
    # At 0 s both first jobs fit on A100 only; then job 3 comes, for which a T4 node is free, and may wait.
    assert observation["mask"][0].reshape(-1)[: 4 * 3].tolist() == [1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    vec.step(np.array([0]))
    observation, *_ = vec.step(np.array([3 * 0]))
    rows = rows_of(vec, observation)
    assert rows[0]["gpus"] == pytest.approx(np.log(3) / np.log(9)) and rows[0]["share"] == 0.25
    assert (rows[0]["speed_A100"], rows[0]["speed_T4"]) == (0.5, pytest.approx(0.2))
    assert rows[0]["priority"] == 0.75 and rows[0]["cores"] == pytest.approx(4 / 32)
    assert (rows[0]["fits_A100"], rows[0]["fits_T4"]) == (0, 1)
    assert observation["mask"][0, :3].tolist() == [1, 0, 1] and observation["mask"][0, -1] == 1
    observation, *_ = vec.step(
        np.array([vec.observation_spec.actions - 1])
    )  # hold until job 4 arrives, which shares job 2's GPU
    rows = rows_of(vec, observation)
    assert [row["running"] for row in rows] == [0, 0, 0, 0, 1, 1]
    assert rows[0]["length"] == rows[0]["remaining"] == pytest.approx(0)
    assert (rows[0]["hour"], rows[0]["patience"], rows[1]["hour"]) == (0.5, 0.5, 0.0)
    assert rows[0]["day"] == pytest.approx(3600 / 90000)
    assert (rows[0]["place"], rows[1]["place"]) == (0.0, 0.5)
    assert rows[1]["part"] == 0.25 and rows[1]["share"] == pytest.approx(0.25 / 8) and rows[1]["priority"] == 0
    assert (rows[1]["fits_A100"], rows[1]["fits_T4"], rows[1]["speed_T4"]) == (1, 0, 0)
    assert rows[0]["work"] == pytest.approx(np.log1p(2 / 8) / 3)
    first = rows[4]  # the most remaining work: 8 h on 3 GPUs
    assert first["remaining"] == pytest.approx(np.log(8) / 3) and first["share"] == pytest.approx(3 / 8)
    assert first["work"] == pytest.approx(np.log1p(3 * 8 / 8) / 3)
    assert (first["attained"], first["hour"], first["place"]) == (pytest.approx(2 / 3), 0, 0)
    assert (first["fits_A100"], first["fits_T4"]) == (1, 0)
    assert rows[5]["part"] == 0.5 and not observation["jobs"][0, 2:4].any()
    assert observation["mask"][0].tolist() == [1, 0, 1, 1, 1, 0, *[0] * 6, 1, 0, 0, 1, 0, 0, 1]
    summary = dict(zip(vec.observation_spec.summary, observation["summary"][0].tolist(), strict=True))
    assert summary["free"] == pytest.approx(4.5 / 8) and summary["whole"] == pytest.approx(4 / 8)
    assert summary["widest"] == pytest.approx(2 / 4)
    assert summary["free_A100"] == pytest.approx(0.5 / 4) and summary["free_T4"] == 1
    assert summary["queue"] == pytest.approx(np.log(3) / 5) == summary["running"]
    assert summary["backlog"] == pytest.approx(np.log1p((2 + 0.125) / 8) / 3)
    assert summary["ahead"] == pytest.approx(np.log1p((3 * 8 + 0.5 * 3) / 8) / 3)
    assert summary["release"] == pytest.approx(3 / 4) and summary["ending"] == 0 == summary["hidden"]
    assert summary["day_sin"] == pytest.approx(np.sin(2 * np.pi / 12), abs=1e-6)
    observation, *_ = vec.step(np.array([4 * 3]))  # preempt the first job: it waits again with its completed work
    again = rows_of(vec, observation)[0]
    assert (again["running"], again["hour"]) == (0, 0) and again["remaining"] == pytest.approx(np.log(8) / 3)
    assert again["attained"] == pytest.approx(2 / 3) and again["length"] == pytest.approx(np.log(10) / 3)


def test_more_jobs_than_slots_shows_the_oldest_and_the_smallest_fitting_jobs():
    n = 40
    wide = np.arange(n) % 4 == 0  # jobs that do not fit beside the first
    jobs = kw.JobTable(
        job_id=range(n + 1),
        submit_s=[0] + [1] * n,
        runtime_s=[1000] + [100] * n,
        estimate_s=[1000, *range(400, 400 - 5 * n, -5)],
        nodes=[1] * (n + 1),
        gpus=[1, *np.where(wide, 4, 1)],
    )
    cluster = Cluster([NodeGroup("one", 1, gpus=4, gpu_type="T4", node_level=True)])
    vec = gpu_env(jobs, cluster=cluster, episode_jobs=n + 1, queue_window=8)
    observation, _ = vec.reset()
    assert vec.simulator.buffers.slots[0].tolist() == [2, 3, 4, 6, 40, 39, 38, 36]
    rows = rows_of(vec, observation)
    assert rows[0]["place"] == pytest.approx(1 / n) and rows[4]["place"] == pytest.approx(39 / n)
    assert observation["summary"][0, vec.observation_spec.summary.index("hidden")] == pytest.approx((n - 8) / n)
    held = gpu_env(jobs, cluster=cluster, episode_jobs=n + 1, queue_window=36, hold=True)
    held.reset()  # more slots than jobs that fit: the others come last
    held.step(np.array([0]))
    slots = held.simulator.buffers.slots[0]
    assert slots[:3].tolist() == [2, 3, 4] and slots[30:].tolist() == [1, 5, 9, 13, 17, 21]


def test_types_of_separate_queues_are_separate():
    cluster = Cluster.preset("helios-venus")
    jobs = kw.JobTable(
        job_id=[1, 2],
        submit_s=[0, 0],
        runtime_s=[9, 9],
        nodes=[1, 1],
        gpus=[1, 1],
        queue=[0, 1],
        labels={"queue": ("vcWoR", "vcEwI")},
    )
    vec = gpu_env(jobs, cluster=cluster, episode_jobs=2, queue_window=2)
    observation, _ = vec.reset()
    assert vec.observation_spec.choices == 17
    assert np.flatnonzero(observation["mask"][0]).tolist() == [0, 2, 17, 18]
