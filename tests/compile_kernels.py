"""Compile the kernels that most tests use, each once, in two processes: the processes of pytest then only load them.

    python -m tests.compile_kernels [batch|power|gpu|envs]...

Without this every process of pytest would compile every kernel.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

STEPS = ("advance", "schedule", "begin", "start", "reserve", "hold")
KERNELS = {
    "batch": ("engine.jit_entry:compiled_kernel", {}, ("run_conservative", "run", *STEPS)),
    "power": (
        "engine.jit_entry:compiled_kernel",
        {"power": True},
        ("run_conservative", "run", *STEPS, "wake", "sleep"),
    ),
    "gpu": (
        "engine.gpu.event_loop:compiled_gpu_kernel",
        {},
        ("run", "advance", "schedule", "due", "update_rates", "start", "preempt", "migrate"),
    ),
}
ENVIRONMENTS = ("Gpu-v0", "Energy-v0", "Batch-v0")


def compile_kernel(task: tuple[str, str]) -> None:
    """Compile one kernel, or those of one environment, into the cache."""
    kind, name = task
    if kind == "envs":
        compile_environment(name)
        return
    from importlib import import_module

    module, function = KERNELS[kind][0].split(":")
    getattr(import_module(f"kilowait.{module}"), function)(name, **KERNELS[kind][1])


def compile_environment(name: str) -> None:
    """Compile the step of an environment by one step."""
    import gymnasium

    import kilowait as kw
    import kilowait.envs  # registers the environments

    options = {"power": "taurus", "power_controls": "sleep=break-even+dvfs=1.3"} if name == "Energy-v0" else {}
    if name == "Gpu-v0":
        from kilowait.experiments.scenario import prepare_scenario
        from kilowait.experiments.settings import Scenario

        workload, cluster, _ = prepare_scenario(Scenario("gpu:60:gpu-mixed:1.0:4", cluster="gpu-mixed"))
        jobs = workload.jobs
    else:
        jobs, cluster = kw.lublin(60, 32, load=0.9, seed=1), kw.Cluster.from_nodes(32)
    env = gymnasium.make(f"kilowait/{name}", jobs=jobs, cluster=cluster, episode_jobs=20, **options)
    env.reset(seed=0)
    env.close()


def main(kinds: list[str]) -> None:
    """Compile the kernels of these kinds; without kinds all."""
    kinds = kinds or [*KERNELS, "envs"]
    tasks = [(kind, name) for name in ENVIRONMENTS for kind in kinds if kind == "envs"]
    tasks += [(kind, name) for kind in KERNELS if kind in kinds for name in KERNELS[kind][2]]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_kernel, tasks))


if __name__ == "__main__":
    main(sys.argv[1:])
