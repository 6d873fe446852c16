"""Jobs that draw alike are looked at once, and nobody can tell from the results."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.energy import PowerModel, account_energy
from kilowait.energy.accounting import lower_bound_kwh
from kilowait.energy.accounting.job_power import ClassTable
from kilowait.energy.controls import resolve_controls
from kilowait.energy.power import ConstantUtilization, UtilizationByClass, UtilizationClass
from kilowait.energy.power.utilization import unique_classes

TAURUS = PowerModel.preset("taurus")
CLUSTER = Cluster.from_nodes(32)


@pytest.mark.parametrize("text", ["sleep=break-even+dvfs=1.2", "dvfs=1.2+budget=80%"])
def test_a_run_is_the_same_job_by_job(text: str) -> None:
    """A column of unknown betas makes every job its own kind and changes nothing else."""
    jobs = kw.lublin(300, 32, load=0.9, seed=4)
    each = jobs.with_columns(beta=np.full(len(jobs), np.nan))
    spent, least, logs = [], [], []
    for table in (jobs, each):
        pulled = resolve_controls(text, table, CLUSTER, TAURUS)
        assert pulled.tables is not None
        assert isinstance(pulled.tables["nodes"], ClassTable) is (table is jobs)
        log = kw.simulate(pulled.jobs, CLUSTER, "fcfs", "easy", power_controls=pulled.controls)
        logs.append((log.start_s.tolist(), log.end_s.tolist(), log.level.tolist()))
        spent.append(account_energy(log, CLUSTER, TAURUS, tables=pulled.tables).metrics())
        least.append(lower_bound_kwh(table, CLUSTER, TAURUS, pulled.tables))
    assert logs[0] == logs[1] and max(logs[0][2]) > 0
    assert spent[0] == spent[1] and least[0] == least[1]


def test_who_is_alike() -> None:
    jobs = kw.lublin(50, 32, seed=1)
    few, kind = unique_classes(jobs, ConstantUtilization(0.5))
    assert kind is not None and (few["nodes"][kind] == jobs["nodes"]).all()
    assert len(few) == len(np.unique(jobs["nodes"])) < len(jobs)
    classes = UtilizationByClass(
        (UtilizationClass("long", cpu=0.9, runtime_s=(60, 600)),), ConstantUtilization()
    )
    none = jobs[:0]
    measured = jobs.with_columns(power_w=np.full(len(jobs), 300.0))
    huge = jobs[:2].with_columns(nodes=[1, 2**40])
    for table, profile in (
        (jobs, classes),
        (none, ConstantUtilization()),
        (measured, ConstantUtilization()),
        (huge, ConstantUtilization()),
    ):
        assert unique_classes(table, profile) == (table, None)
    assert unique_classes(jobs, ConstantUtilization(), by_cores=True) == (jobs, None)
