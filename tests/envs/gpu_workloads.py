"""GPU workloads, policies run through the environment, and the log of an episode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds, constant_speeds
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.envs.gpu_env import GpuVectorEnv, external_gpu_policy
from kilowait.envs.kernels.state_stack_gpu import SHARED
from kilowait.jobs import JobTable

TYPES = ("A100", "T4")


def machine() -> Cluster:
    return Cluster(
        name="small",
        groups=[
            NodeGroup("a100", 2, 16, 64.0, 4, "A100", node_level=True),
            NodeGroup("t4", 3, 8, 32.0, 2, "T4", node_level=True),
            NodeGroup("cpu", 1, 16, 64.0, node_level=True),
        ],
    )


def crowded(jobs: int, seed: int) -> JobTable:
    """Short, crowded, with ties: whole GPUs, parts, gangs on several nodes or spread, none; some bound to a type."""
    random = np.random.default_rng(seed)
    gpus = random.choice([0, 1, 1, 1, 2, 4], jobs)
    spread = (gpus > 1) & (random.random(jobs) < 0.4)
    nodes = np.where(~spread & (gpus >= 2) & (random.random(jobs) < 0.4), 2, 1)
    part = (gpus == 1) & (random.random(jobs) < 0.5)
    return JobTable(
        job_id=np.arange(jobs),
        submit_s=np.sort(random.integers(0, jobs * 25, jobs)),
        runtime_s=random.integers(1, 900, jobs),
        estimate_s=random.integers(1, 90, jobs) * 10,
        nodes=nodes,
        gpus=gpus,
        gpu_milli=np.where(part, random.choice([200, 500, 700], jobs), 1000),
        cores=random.integers(1, 5, jobs),
        memory_mb=random.choice([1000.0, 4000.0, 20000.0], jobs),
        gpus_may_span_nodes=spread.astype(np.int8),
        priority=random.choice([-1.0, 0.0, 1.0, 5.0], jobs),
        gpu_types=np.where((gpus > 0) & (nodes == 1) & (gpus <= 2), random.integers(-1, 2, jobs), -1),
        labels={"gpu_types": ("A100", "T4|A100")},
    )


def speeds_of(jobs: JobTable, seed: int = 0) -> Speeds:
    random = np.random.default_rng(seed)
    n = len(jobs)
    speed = {"A100": np.ones(n), "T4": random.choice([0.25, 0.5, 1.5], n)}
    return constant_speeds(jobs, TYPES, speed, {"A100": random.choice([0.7, 1.0], n), "T4": 0.8})


def part_of(speeds: Speeds | None, rows: slice) -> Speeds | None:
    if speeds is None:
        return None
    return replace(speeds, speed=speeds.speed[:, rows], spread=speeds.spread[:, rows], source=speeds.source[:, rows])


def gpu_env(jobs=None, copies=1, cluster=None, episode_jobs=60, **arguments) -> GpuVectorEnv:
    """An environment in which every GPU type has the same speed, unless speeds are given."""
    if arguments.get("speeds") is None:
        arguments["gpu_settings"] = replace(arguments.get("gpu_settings") or GpuSettings(), gpu_speeds="none")
    arguments.setdefault("autoreset_mode", AutoresetMode.DISABLED if copies == 1 else AutoresetMode.SAME_STEP)
    return GpuVectorEnv(
        copies,
        jobs=crowded(150, 0) if jobs is None else jobs,
        cluster=cluster or machine(),
        episode_jobs=episode_jobs,
        **arguments,
    )


def log_of(vec: GpuVectorEnv, speeds: Speeds | None = None, copy: int = 0):
    """Log of a copy so far, as a simulator of its window returns it."""
    first, n = int(vec.simulator.buffers.copies["first"][copy]), vec.episode_jobs
    window = vec.jobs[first : first + n]
    settings = replace(vec.decision_settings.settings(vec.gpu_settings), on_oversized="drop")
    simulator = GpuSimulator(window, vec.cluster, settings, policy=external_gpu_policy(), speeds=speeds)
    simulator._state = state_of(vec, copy)
    return simulator.log()


def state_of(vec: GpuVectorEnv, copy: int = 0):
    """The state of a copy, on its own."""
    rows = {name: array[0 if name in SHARED else copy].copy() for name, array in vec.simulator.states._asdict().items()}
    n = vec.episode_jobs
    return type(vec.simulator.states)(**{**rows, "job_state": rows["job_state"][:n], "jobs": rows["jobs"][:n]})


def run_window(vec: GpuVectorEnv, score, first: int) -> None:
    """Run the window from row `first` in copy 0 by the smallest score of the job records, with default placement."""
    vec.reset(options={"first": first})
    slots, choices, over = vec.decision_settings.queue_window, vec.observation_spec.choices, False
    while not over:
        a = vec.simulator.buffers
        numbers = a.slots[0, : int(a.copies["shown"][0])]
        scores = np.full(slots, np.inf)
        scores[: len(numbers)] = score(vec.simulator.states.job_state[0], numbers)
        scores[a.mask[0, : slots * choices : choices] == 0] = np.inf
        over = bool(vec.step(np.array([int(np.argmin(scores)) * choices]))[2][0])


def run_random_episode(vec: GpuVectorEnv, seed: int = 0, **options):
    """Random allowed actions in copy 0 to the end; the terms of all steps summed, the return, the last info."""
    random = np.random.default_rng(seed)
    vec.reset(seed=seed, options=options)
    terms, total, over = 0.0, 0.0, False
    while not over:
        choice = random.choice(np.flatnonzero(vec.action_masks()[0]))
        _, reward, ended, cut, infos = vec.step(np.array([choice]))
        terms, total, over = terms + infos["terms"][0], total + reward[0], bool(ended[0] or cut[0])
    return terms, total, infos


def same_segments(one, other) -> bool:
    """Whether two logs are of the same segments on the same GPUs."""
    columns = ("job", "start_s", "end_s", "outcome", "group")
    pieces = ("segment", "node", "gpus", "gpu_milli", "count", "work_s", "lost_s")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns) and all(
        np.array_equal(getattr(one.pieces, name), getattr(other.pieces, name)) for name in pieces
    )


def skip_settings(**arguments) -> GpuSettings:
    """As `simulate` with backfill="skip" goes."""
    return GpuSettings(head_of_line_blocking=False, **arguments)
