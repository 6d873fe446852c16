"""Jobs of equal power are computed once, with unchanged results."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.energy import PowerModel, account_energy
from kilowait.energy.accounting import lower_bound_kwh
from kilowait.energy.accounting.job_power import DvfsTableByClass
from kilowait.energy.controls import resolve_controls
from kilowait.energy.power import ConstantUtilization, UtilizationByClass, UtilizationClass
from kilowait.energy.power.utilization import unique_classes

TAURUS = PowerModel.preset("taurus")
CLUSTER = Cluster.from_nodes(32)


@pytest.mark.parametrize("text", ["sleep=break-even+dvfs=1.2", "dvfs=1.2+budget=80%"])
def test_job_classes_do_not_change_the_run(text: str) -> None:
    """A column of unknown betas gives every job its own class and changes nothing else."""
    jobs = kw.lublin(300, 32, load=0.9, seed=4)
    per_job = jobs.with_columns(beta=np.full(len(jobs), np.nan))
    energy, lower_bounds, logs = [], [], []
    for table in (jobs, per_job):
        resolved = resolve_controls(text, table, CLUSTER, TAURUS)
        assert resolved.tables is not None
        assert isinstance(resolved.tables["nodes"], DvfsTableByClass) is (table is jobs)
        log = kw.simulate(resolved.jobs, CLUSTER, "fcfs", "easy", power_controls=resolved.controls)
        logs.append((log.start_s.tolist(), log.end_s.tolist(), log.level.tolist()))
        energy.append(account_energy(log, CLUSTER, TAURUS, tables=resolved.tables).metrics())
        lower_bounds.append(lower_bound_kwh(table, CLUSTER, TAURUS, resolved.tables))
    assert logs[0] == logs[1] and max(logs[0][2]) > 0
    assert energy[0] == energy[1] and lower_bounds[0] == lower_bounds[1]


def test_unique_job_classes() -> None:
    jobs = kw.lublin(50, 32, seed=1)
    representatives, class_of_job = unique_classes(jobs, ConstantUtilization(0.5))
    assert class_of_job is not None and (representatives["nodes"][class_of_job] == jobs["nodes"]).all()
    assert len(representatives) == len(np.unique(jobs["nodes"])) < len(jobs)
    classes = UtilizationByClass((UtilizationClass("long", cpu=0.9, runtime_s=(60, 600)),), ConstantUtilization())
    empty = jobs[:0]
    measured = jobs.with_columns(power_w=np.full(len(jobs), 300.0))
    huge = jobs[:2].with_columns(nodes=[1, 2**40])
    for table, profile in (
        (jobs, classes),
        (empty, ConstantUtilization()),
        (measured, ConstantUtilization()),
        (huge, ConstantUtilization()),
    ):
        assert unique_classes(table, profile) == (table, None)
    assert unique_classes(jobs, ConstantUtilization(), by_cores=True) == (jobs, None)
