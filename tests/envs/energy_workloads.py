"""Workloads with power for environment tests, and policies run through the environments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster, PowerControls
from kilowait.energy.power import PowerModel
from kilowait.engine.kernels.state import DONE
from kilowait.envs.energy_env import EnergyVectorEnv
from kilowait.jobs import JobTable
from kilowait.series import Series
from tests.envs.workloads import crowded

MACHINE = Cluster.from_nodes(16)
NEVER = 1e12


def quiet(jobs: int, seed: int, nodes: int = 16) -> JobTable:
    """Jobs with pauses between them, in which nodes can sleep; of different power and beta."""
    random = np.random.default_rng(seed)
    return JobTable(
        job_id=np.arange(jobs),
        submit_s=np.sort(random.integers(0, jobs * 150, jobs)),
        runtime_s=random.integers(1, 2000, jobs),
        estimate_s=random.integers(1, 250, jobs) * 10,
        nodes=random.integers(1, nodes + 1, jobs),
        user=random.integers(0, 5, jobs),
        queue=random.integers(0, 2, jobs),
        beta=random.uniform(0, 1, jobs),
        power_w=np.where(random.random(jobs) < 0.5, np.nan, random.uniform(100, 3000, jobs)),
    )


def signals(span_s: float = 60 * 86400.0) -> dict[str, Series]:
    """An hourly carbon intensity and a quarter-hourly price, which is negative at times."""
    hours, quarters = np.arange(-48 * 3600.0, span_s, 3600.0), np.arange(-48 * 3600.0, span_s, 900.0)
    random = np.random.default_rng(5)
    return {
        "carbon": Series(hours, 300 + 250 * np.sin(np.arange(len(hours) - 1) / 4), "g/kWh"),
        "price": Series(quarters, random.normal(60, 60, len(quarters) - 1), "EUR/MWh"),
    }


def energy(jobs=None, copies=1, cluster=MACHINE, episode_jobs=60, **arguments):
    arguments.setdefault("autoreset_mode", AutoresetMode.DISABLED if copies == 1 else AutoresetMode.SAME_STEP)
    arguments.setdefault("power", PowerModel.preset("taurus"))
    arguments.setdefault("power_controls", "sleep=timeout:120+dvfs=1.5")
    return EnergyVectorEnv(
        copies, jobs=quiet(200, 0) if jobs is None else jobs, cluster=cluster, episode_jobs=episode_jobs, **arguments
    )


def run_window(vec: EnergyVectorEnv, scores, level: int, first: int) -> np.ndarray:
    """Run the window from row `first` by `scores` (one per job of the log), all at one DVFS state; the start times."""
    vec.reset(options={"first": first})
    over = False
    while not over:
        a = vec.simulator.buffers
        shown = int(a.copies["shown"][0])
        slot = np.full(vec.decision_settings.queue_window, np.inf)
        slot[:shown] = scores[first + a.slots[0, :shown]]
        slots, levels = vec.decision_settings.queue_window, vec.observation_spec.choices
        slot[a.mask[0, : slots * levels].reshape(slots, levels)[:, level] == 0] = np.inf
        chosen = int(np.argmin(slot))
        action = slots * levels if np.isinf(slot[chosen]) else chosen * levels + level
        assert a.mask[0, action] == 1
        over = bool(vec.step(np.array([action]))[2][0])
    job_state = vec.simulator.states.job_state[0]
    return np.where(job_state["status"] == DONE, job_state["start_s"], np.nan)


def window_controls(vec: EnergyVectorEnv, first: int, level: int) -> PowerControls:
    """Arguments of `kilowait.simulate` to run a window of the env's log with all jobs at a level."""
    power_controls, rows = vec.power_setup.power_controls, slice(first, first + vec.episode_jobs)
    return replace(
        power_controls,
        factor=None if power_controls.factor is None else power_controls.factor[:, rows],
        watts=None if power_controls.watts is None else power_controls.watts[:, rows],
        preferred_level=np.full(vec.episode_jobs, level),
    )


__all__ = ["MACHINE", "NEVER", "crowded", "energy", "run_window", "quiet", "signals", "window_controls"]
