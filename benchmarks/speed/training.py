"""Benchmark of environment steps and training steps a second on this machine and device.

The workload is that of the Lublin–Feitelson model on 256 nodes at load 1; the benchmark measures speed, not learning.
The best of several repetitions counts, as other work on the machine only slows them down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import kilowait as kw
from kilowait.errors import UnknownNameError

__all__ = ["batched_steps_per_s", "gpu_steps_per_s", "single_steps_per_s", "training_speeds"]

NODES, JOBS = 256, 20_000
ALGORITHMS = ("ppo", "a2c", "d3qn", "sac")


def _vector(copies: int, *, queue_window: int, threads: int | None = None, **env_options: Any) -> Any:
    from kilowait.envs.batch_env import BatchVectorEnv

    jobs = kw.lublin(JOBS, NODES, load=1.0, seed=0, estimates="rounded")
    return BatchVectorEnv(
        copies,
        jobs=jobs,
        cluster=kw.Cluster.from_nodes(NODES),
        queue_window=queue_window,
        threads=threads,
        autoreset_mode="SameStep",
        **env_options,
    )


def batched_steps_per_s(*, copies: int = 1024, queue_window: int = 128, seconds: float = 3.0) -> float:
    """Steps a second of many sub-environments with observation and mask; the policy takes the oldest job."""
    return _stepped(_vector(copies, queue_window=queue_window, copy=False), copies, seconds)


def gpu_steps_per_s(*, copies: int = 1024, load: float = 1.1, seconds: float = 3.0) -> float:
    """The same for `kilowait/Gpu-v0` with default settings, on gpu-mixed: first job that fits, default placement."""
    from kilowait.envs.gpu_env import GpuVectorEnv
    from kilowait.experiments.gpu_options import run_speeds
    from kilowait.synth import gpu_workload

    cluster = kw.Cluster.preset("gpu-mixed")
    jobs = gpu_workload(JOBS, cluster, load=load, seed=0)
    vec = GpuVectorEnv(
        copies,
        jobs=jobs,
        cluster=cluster,
        speeds=run_speeds("auto", jobs, cluster),
        autoreset_mode="SameStep",
        copy=False,
    )
    return _stepped(vec, copies, seconds)


def _stepped(vec: Any, copies: int, seconds: float) -> float:
    vec.reset(seed=0)
    oldest = np.zeros(copies, np.int64)
    best, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        for _ in range(50):
            vec.step(oldest)
        best = max(best, 50 * copies / (time.perf_counter() - start))
    vec.close()
    return best


def single_steps_per_s(*, queue_window: int = 128, seconds: float = 2.0) -> float:
    """Steps a second of one environment through Gymnasium's interface."""
    from kilowait.envs.batch_env import BatchEnv

    jobs = kw.lublin(JOBS, NODES, load=1.0, seed=0, estimates="rounded")
    env = BatchEnv(jobs=jobs, cluster=kw.Cluster.from_nodes(NODES), queue_window=queue_window)
    env.reset(seed=0)
    oldest = np.int64(0)
    best, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        for _ in range(2000):
            if env.step(oldest)[2]:
                env.reset()
        best = max(best, 2000 / (time.perf_counter() - start))
    return best


class _Timed:
    """A vector environment that measures the time of its steps."""

    def __init__(self, vec: Any) -> None:
        self._vec = vec
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vec, name)

    def step(self, actions: Any) -> Any:
        began = time.perf_counter()
        stepped = self._vec.step(actions)
        self.seconds += time.perf_counter() - began
        return stepped


@dataclass(frozen=True)
class TrainingSpeed:
    """Speed of one algorithm with one network, without the first update, which compiles and allocates."""

    algorithm: str
    network: str
    device: str
    envs: int
    steps_per_s: float
    """Environment steps a second, end to end."""
    env_share: float
    """Share of the time spent in the environments."""
    env_steps_per_s: float
    """Environment steps a second of environment time."""
    learner_steps_per_s: float
    """Environment steps a second of all other time: inference, transfer, learning."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def training_speeds(
    *,
    device: str = "cpu",
    algorithms: Sequence[str] = ALGORITHMS,
    networks: Sequence[str] = ("kernel", "attention", "gat"),
    envs: int = 64,
    queue_window: int = 64,
    updates: int = 6,
    precision: str = "float32",
    threads: int = 1,
    settings: dict[str, Any] | None = None,
) -> Iterator[TrainingSpeed]:
    """Yield the speed of every algorithm with every network, measured over a few updates.

    `settings` are passed to those algorithms that have such a hyperparameter.
    """
    from kilowait import agents

    for name in algorithms:
        if name not in ALGORITHMS:
            raise UnknownNameError("algorithm", name, ALGORITHMS)
    for kind in networks:
        if kind not in agents.FEATURE_EXTRACTORS:
            raise UnknownNameError("network", kind, agents.FEATURE_EXTRACTORS)
    for kind in networks:
        for name in algorithms:
            copied = name in ("d3qn", "sac")  # replay buffers need new arrays
            vec = _Timed(_vector(envs, queue_window=queue_window, graph=kind == "gat", copy=copied))
            train = getattr(agents, f"train_{name}")
            hyperparameters = getattr(agents, f"{name.upper()}Settings")(network=kind, precision=precision)
            known = {key: value for key, value in (settings or {}).items() if hasattr(hyperparameters, key)}
            if hasattr(hyperparameters, "learning_starts"):
                known |= {
                    "learning_starts": agents.steps_per_update(hyperparameters) * envs,
                    "buffer_size": max(4096, 4 * agents.steps_per_update(hyperparameters) * envs),
                }
            hyperparameters = replace(hyperparameters, **known)
            hyperparameters = replace(
                hyperparameters, total_timesteps=(updates + 2) * agents.steps_per_update(hyperparameters) * envs
            )
            marks: list[tuple[float, float, int]] = []

            def note(update: Any, marks: list[tuple[float, float, int]] = marks, vec: _Timed = vec) -> None:
                marks.append((time.perf_counter(), vec.seconds, update.steps))

            train(vec, hyperparameters, seed=0, device=device, threads=threads, progress=note)
            total = marks[-1][0] - marks[1][0]
            in_env = marks[-1][1] - marks[1][1]
            steps = marks[-1][2] - marks[1][2]
            yield TrainingSpeed(
                name, kind, device, envs, steps / total, in_env / total, steps / in_env, steps / (total - in_env)
            )
            vec.close()
