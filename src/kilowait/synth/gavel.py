"""Gavel's synthetic workload of training jobs, identical to that of its simulator for the same seed.

D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia, "Heterogeneity-aware cluster scheduling policies
for deep learning workloads", OSDI 2020; the order of random numbers is that of its simulator
(github.com/stanford-futuredata/gavel, scheduler/utils.py, job_table.py and scheduler.py): Python's random generator,
seeded with seed + 2 for the jobs, seed + 3 for the interarrival times, seed + 6 for the deadlines. For each job these
are sampled, in this order:

- the number of GPUs: 1 with probability 0.7, 2 with 0.1, 4 with 0.15, 8 with 0.05; sampled even if all jobs use one;
- minutes on V100: 10^U(3, 4) with probability 0.2, else 10^U(1.5, 3);
- one of 26 model types, equally likely; resampled until it supports several GPUs if the job has them;
- with priorities, its weight: 5 with probability 0.2, else 1.
"""

from __future__ import annotations

import math
import operator
import random

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["MODEL_TYPES", "MULTI_GPU_MODELS", "gavel_jobs"]


def _batches(name: str, *sizes: int) -> tuple[str, ...]:
    return tuple(f"{name} (batch size {size})" for size in sizes)


MULTI_GPU_MODELS: tuple[str, ...] = (
    *_batches("ResNet-18", 16, 32, 64, 128, 256),
    *_batches("ResNet-50", 16, 32, 64, 128),
    *_batches("Transformer", 16, 32, 64, 128, 256),
    *_batches("LM", 5, 10, 20, 40, 80),
)
"""Model types that run on several GPUs."""

MODEL_TYPES: tuple[str, ...] = (
    *MULTI_GPU_MODELS,
    *_batches("Recommendation", 512, 1024, 2048, 4096, 8192),
    "A3C",
    "CycleGAN",
)
"""All model types, in Gavel's order."""


def gavel_jobs(
    jobs: int,
    jobs_per_hour: float,
    seed: int = 0,
    *,
    multi_gpu: bool = False,
    priorities: bool = False,
    slo: bool = False,
) -> JobTable:
    """The first `jobs` jobs of Gavel's workload; `runtime_s` and `estimate_s` are seconds on V100.

    Args:
        jobs: number of jobs. Gavel's published results are of jobs 4000 to 4999 while later jobs keep arriving.
        jobs_per_hour: rate of the Poisson process; the first job arrives at 0. Infinite: all arrive at 0.
        seed: the seed of Gavel's simulator.
        multi_gpu: some jobs take 2, 4 or 8 GPUs, on any nodes (`gpus_may_span_nodes`).
        priorities: a fifth of the jobs has priority 5, the others 1.
        slo: deadlines of 1.2, 2 or 10 times the run time, a third each; `slack_s` is the deadline less the run time.

    >>> workload = gavel_jobs(5000, 4.0, seed=0)
    >>> float(workload["runtime_s"][4000:].mean() / 3600), workload.labels["model"][workload["model"][0]]
    (17.4146..., 'ResNet-18 (batch size 64)')
    """
    try:
        count, seed = operator.index(jobs), operator.index(seed)
    except TypeError:
        raise InputError(f"{jobs!r} jobs with the seed {seed!r}; both must be whole numbers") from None
    if count < 1:
        raise InputError(f"the number of jobs is {count}; it must be at least 1")
    if not jobs_per_hour > 0:
        raise InputError(f"{jobs_per_hour} jobs per hour; the rate must be above 0")
    # Python seeds with the absolute value, so -6 would give the jobs of seed 2.
    if seed < 0:
        raise InputError(f"the seed is {seed}; it must be 0 or more")
    job_rng, arrival_rng, slo_rng = (random.Random(seed + offset) for offset in (2, 3, 6))
    gap_s = 3600.0 / jobs_per_hour  # computed as in Gavel, so that the last bit agrees
    submit, gpus, runtime, model, priority, slack = [], [], [], [], [], []
    now_s = 0.0
    for _ in range(count):
        job_gpus = _gpus(job_rng.uniform(0, 1))
        if not multi_gpu:
            job_gpus = 1
        runtime_s = _runtime_s(job_rng)
        model_type = job_rng.choice(MODEL_TYPES)
        while job_gpus > 1 and model_type not in MULTI_GPU_MODELS:
            model_type = job_rng.choice(MODEL_TYPES)
        if priorities:
            priority.append(5.0 if job_rng.uniform(0, 1) <= 0.2 else 1.0)
        if slo:
            slack.append((_slo(slo_rng.uniform(0, 1)) - 1.0) * runtime_s)
        submit.append(now_s)
        gpus.append(job_gpus)
        runtime.append(runtime_s)
        model.append(MODEL_TYPES.index(model_type))
        if gap_s > 0:
            now_s += -math.log(1.0 - arrival_rng.random()) / (1.0 / gap_s)
    return JobTable(
        job_id=np.arange(count),
        submit_s=submit,
        runtime_s=runtime,
        nodes=np.ones(count, np.int64),
        gpus=gpus,
        model=model,
        gpus_may_span_nodes=np.ones(count, np.int8) if multi_gpu else None,
        priority=priority if priorities else None,
        slack_s=slack if slo else None,
        labels={"model": MODEL_TYPES},
        meta={"workload": "gavel", "seed": seed, "jobs_per_hour": float(jobs_per_hour), "reference_gpu": "V100"},
    )


def _gpus(uniform: float) -> int:
    if uniform < 0.7:
        return 1
    if uniform <= 0.8:
        return 2
    return 4 if uniform <= 0.95 else 8


def _runtime_s(rng: random.Random) -> float:
    low, high = (3.0, 4.0) if rng.random() >= 0.8 else (1.5, 3.0)
    return float(60 * 10 ** rng.uniform(low, high))


def _slo(uniform: float) -> float:
    if uniform < 0.33:
        return 1.2
    return 2.0 if uniform < 0.67 else 10.0
