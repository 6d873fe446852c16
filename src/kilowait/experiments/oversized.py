"""Jobs larger than the cluster: the rule `on_oversized` (error or drop) before trainings, evaluations and comparisons.

A simulation rejects such jobs and counts them. An agent is trained and tested on the other jobs only: windows, splits
and the number of jobs are those of the jobs that fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import speeds_for
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.errors import InputError
from kilowait.experiments.scenario_inputs import Workload
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from kilowait.policies import resolve


def jobs_that_fit(
    jobs: JobTable, cluster: Cluster, on_oversized: str, gpu_speeds: str = GpuSettings.gpu_speeds
) -> npt.NDArray[np.bool_]:
    """Whether each job fits on the empty cluster; with `on_oversized` "error", a job that does not is an error.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 5])
    >>> jobs_that_fit(jobs, Cluster.from_nodes(4), "drop").tolist()
    [True, False]
    """
    policy = resolve("fcfs")
    if cluster.node_level:
        settings, speeds = GpuSettings(on_oversized=on_oversized), speeds_for(gpu_speeds, jobs, cluster)
        log = GpuSimulator(jobs, cluster, settings, policy=policy, speeds=speeds).log()
        return np.asarray(log.job_outcome != Outcome.REJECTED)
    simulator = Simulator(jobs, cluster, Settings(on_oversized=on_oversized, dependencies=False), policy=policy)
    fits = np.empty(len(jobs), np.bool_)
    fits[slice(None) if jobs.order is None else jobs.order] = simulator.state.job_state["allowed"] != 0
    return fits


def oversized_note(fits: npt.NDArray[np.bool_]) -> list[str]:
    """A note on the number of jobs that are left out, if there are any.

    >>> oversized_note(np.array([True, False, True]))
    ['1 of 3 jobs is larger than the cluster and is left out']
    """
    count = int(np.count_nonzero(~fits))
    verb = "is larger than the cluster and is" if count == 1 else "are larger than the cluster and are"
    return [f"{count:,} of {len(fits):,} jobs {verb} left out"] if count else []


def without_oversized(
    workload: Workload, cluster: Cluster, on_oversized: str, gpu_speeds: str = GpuSettings.gpu_speeds
) -> tuple[Workload, list[str]]:
    """The workload without jobs that are larger than the cluster, and a note on their number; or an error."""
    fits = jobs_that_fit(workload.jobs, cluster, on_oversized, gpu_speeds)
    if not fits.any():
        raise InputError(f"none of the {len(fits):,} jobs fits on {cluster.name}; use a larger cluster")
    return (workload if fits.all() else replace(workload, jobs=workload.jobs[fits])), oversized_note(fits)
