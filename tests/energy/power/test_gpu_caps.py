"""GPU power caps, and energy of jobs by GPU type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import constant_speeds, gpu_types
from kilowait.energy.power import GPU_CAP_CURVES, PowerModel, cap_gpus, energy_by_type
from kilowait.energy.power.partial_node_power import piece_power
from kilowait.engine.gpu.demand import node_types
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import run_gpu_simulation
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies.registry import resolve
from tests.energy.accounting.gpu_integrator import fast, gpu_cluster, power_model, slow

CLUSTER, MODEL = gpu_cluster(1, 1), power_model(fast(1), slow(1))


def table(n: int = 1, **columns: object) -> JobTable:
    defaults = {"job_id": range(n), "submit_s": [0] * n, "runtime_s": [100] * n, "nodes": [1] * n, "gpus": [1] * n}
    return JobTable(**{**defaults, **columns})


def test_caps_above_the_power_of_a_gpu_have_no_effect():
    jobs = table(4, gpu_utilization=[0.2, 0.4, 0.6, 0.8])
    capped = cap_gpus(jobs, gpu_cluster(), power_model(), 0.65)  # 71.5 W; draws of 30, 50, 70, 90 W
    assert capped.speeds.speed[0, :3].tolist() == [1, 1, 1]
    assert capped.speeds.speed[0, 3] < 1
    group = gpu_cluster().groups[0]
    uncapped_w, capped_w = (piece_power(jobs, group, fast(), None, cap).draw_w for cap in (None, capped.gpu_cap))
    assert (uncapped_w - capped_w).tolist() == pytest.approx([0, 0, 0, 18.5])


def test_lower_caps_are_slower_and_draw_less():
    jobs, group = table(gpu_utilization=[0.9]), gpu_cluster().groups[0]
    speeds, watts = [], []
    for cap in np.linspace(1, 0.1, 30):
        capped = cap_gpus(jobs, gpu_cluster(), power_model(), cap)
        speeds.append(capped.speeds.speed[0, 0])
        watts.append(piece_power(jobs, group, fast(), None, capped.gpu_cap).draw_w[0])
    assert (np.diff(speeds) <= 0).all() and (np.diff(watts) <= 0).all()
    assert speeds[0] == 1 and speeds[-1] < 0.3


def test_slowdown_of_the_cap_curve_multiplies_given_speeds():
    jobs = table(2, gpus=[1, 0], cores=[1, 1])
    speeds = constant_speeds(jobs, gpu_types(CLUSTER), {"V100": 2.0, "T4": 0.5})
    capped = cap_gpus(jobs, CLUSTER, MODEL, 0.6, speeds)
    slowdown = float(GPU_CAP_CURVES["V100"].slowdown(0.6))
    np.testing.assert_allclose(capped.slowdown, [[slowdown, 1], [slowdown, 1]])
    assert capped.speeds.speed[:, 0] == pytest.approx([2 / slowdown, 0.5 / slowdown])
    assert capped.speeds.speed[:, 1].tolist() == [1, 1]  # no GPU, no cap
    assert "T4 under a power cap by the curve of V100" in capped.notes[1]


def test_fractional_gpus_get_their_share_of_the_cap():
    jobs = table(2, gpu_milli=[1000, 250])
    capped = cap_gpus(jobs, gpu_cluster(), power_model(), 0.5)
    assert capped.slowdown[0, 0] == capped.slowdown[0, 1] == pytest.approx(1.58)
    power_w = [piece_power(jobs, gpu_cluster().groups[0], fast(), None, cap).draw_w for cap in (None, capped.gpu_cap)]
    assert power_w[0] - power_w[1] == pytest.approx([55, 55 / 4])


def test_caps_per_job_and_cap_curve_of_the_group():
    jobs = table(2)
    group = replace(fast(), cap_curve=GPU_CAP_CURVES["A40"])
    capped = cap_gpus(jobs, gpu_cluster(), power_model(group), [1.0, 0.5])
    assert capped.slowdown[0] == pytest.approx([1, 2.38])


def test_caps_reduce_the_modelled_gpu_part_of_measured_power():
    jobs = table(gpus=[2], cores=[10], power_w=[335], gpu_utilization=[1], cpu_utilization=[1])
    capped_w = piece_power(jobs, gpu_cluster().groups[0], fast(), None, np.array([0.5])).draw_w
    assert capped_w == pytest.approx([225])  # as the model alone would have it


def test_invalid_caps():
    jobs = table()
    with pytest.raises(InputError, match="not above the 10 W it draws idle; give a cap above 0.0909"):
        cap_gpus(jobs, gpu_cluster(), power_model(), 0.05)
    with pytest.raises(InputError, match="power caps are DVFS states"):
        cap_gpus(jobs, Cluster.from_nodes(2), power_model(), 0.5)
    with pytest.raises(InputError, match="not for T4"):
        cap_gpus(jobs, CLUSTER, MODEL, 0.5, constant_speeds(jobs, ("V100",), 1.0))


# -- least energy ---------------------------------------------------------------------------------


def test_energy_by_gpu_type():
    jobs = table(4, gpus=[1, 2, 0, 1], cores=[2, 2, 2, 2], estimate_s=[100, 100, 100, 0])
    speeds = constant_speeds(jobs, gpu_types(CLUSTER), {"V100": 1.0, "T4": [0.4, 1, 1, 0.0]})
    energy_j = energy_by_type(jobs, CLUSTER, MODEL, speeds)
    on_fast = [133 * 100, 243 * 100, 23 * 100, 133]
    on_slow = [60 * 100 / 0.4, np.inf, 15 * 100, np.inf]  # the type has 1 GPU a node; no speed is known
    np.testing.assert_allclose(energy_j, [on_fast, on_slow])
    halved = energy_by_type(jobs, CLUSTER, MODEL, speeds, gpu_cap=np.full(4, 0.5))
    assert halved[0, 0] == pytest.approx((133 - 55) * 100)


@pytest.mark.parametrize("name", ["gpu-mixed", "gavel", "philly", "helios-venus", "thetagpu", "openb"])
def test_rows_are_the_node_types_of_the_run(name):
    cluster = Cluster.preset(name)
    jobs = table(3, gpu_milli=[300, 1000, 1000], gpu_utilization=[0.1, 0.5, 1.0])
    energy_j = energy_by_type(jobs, cluster, PowerModel.preset(name))
    assert energy_j.shape == (len(node_types(cluster)), 3)
    assert np.isfinite(energy_j).all() and (energy_j > 0).all()
    if not cluster.queues:
        assert len(energy_j) == len(gpu_types(cluster))
    log = run_gpu_simulation(jobs, cluster, resolve("fcfs"), GpuSettings(gpu_type_order="given"), preference=energy_j)
    assert len(log) == 3


def test_jobs_run_on_the_type_of_lowest_energy():
    jobs = table(2, cores=[2, 2])
    speeds = constant_speeds(jobs, gpu_types(CLUSTER), {"V100": 1.0, "T4": [0.4, 0.6]})
    preference = energy_by_type(jobs, CLUSTER, MODEL, speeds)  # 133 W against 60 / 0.4 = 150 and 60 / 0.6 = 100
    log = run_gpu_simulation(jobs, CLUSTER, resolve("fcfs"), GpuSettings(gpu_type_order="given"), speeds, preference)
    assert log.group[np.argsort(log.job)].tolist() == [0, 1]


def test_speeds_must_cover_the_jobs_and_types():
    jobs = table()
    with pytest.raises(InputError, match="is unknown"):
        energy_by_type(jobs, CLUSTER, MODEL, constant_speeds(jobs, gpu_types(CLUSTER), {"V100": 1.0}))
    with pytest.raises(InputError, match="speeds of 2 jobs were given for 1"):
        energy_by_type(jobs, CLUSTER, MODEL, constant_speeds(table(2), gpu_types(CLUSTER), 1.0))
    with pytest.raises(InputError, match="no GPU types to choose from"):
        energy_by_type(jobs, Cluster.from_nodes(2), MODEL)
