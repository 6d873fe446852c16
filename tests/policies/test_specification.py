"""The specification (docs/engine.md) defines every built-in policy, by formulas that give the scores of the engine."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kilowait as kw
from kilowait.engine.gpu.state import GPU_JOB
from kilowait.engine.interface import JOB
from kilowait.jobs import JobTable
from kilowait.policies import POLICIES, resolve
from kilowait.policies.round_based import ROUND_BASED_POLICIES

ROW = re.compile(r"^\| `([a-z0-9_+]+)` \| (at arrival|every pass) \| `([^`|]+)` \| [^|]+ \|$", re.MULTILINE)
NODES = 64
CLUSTER = kw.Cluster.from_nodes(NODES)
NOW = 90_000.0
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "random": [{"seed": 3}],
    "alcf": [{"project_priority": {"0": 25.0, "2": 0.5}}],
    "alcf_wfp": [{"share": 0.5, "favour": 3.0}],
    "tiresias": [{"limits": "100,90000", "patience": 0.0}, {"limits": "3250,7200,18000", "patience": 2.0}],
    "multifactor": [
        {
            "age": 700.0,
            "size": -50.0,
            "fair_share": 300.0,
            "qos": 20.0,
            "queue": 10.0,
            "max_age_s": 40_000.0,
            "qos_factor": {"1": 0.5},
            "queue_factor": {"0": 0.25, "2": 1.0},
        }
    ],
}


@pytest.fixture(scope="module")
def section(project: Path) -> str:
    page = (project / "docs" / "engine.md").read_text(encoding="utf-8")
    return page.split("## Built-in policies\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def formulas(section: str) -> dict[str, tuple[str, str]]:
    rows = ROW.findall(section)
    assert len({name for name, _, _ in rows}) == len(rows), "a policy is defined twice"
    return {name: (scored, formula) for name, scored, formula in rows}


def test_every_policy_is_defined(section: str, formulas: dict[str, tuple[str, str]]) -> None:
    assert set(formulas) == set(POLICIES)
    defined = set(re.findall(r"^\| `([a-z]{2,})` \| [^|`]+ `", section, re.MULTILINE)) - set(POLICIES)
    assert defined == set(ROUND_BASED_POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_the_time_of_scoring_is_stated(formulas: dict[str, tuple[str, str]], name: str) -> None:
    assert formulas[name][0] == ("every pass" if resolve(name).time_dependent else "at arrival")


def random_jobs(rng: np.random.Generator, count: int = 40) -> JobTable:
    return JobTable(
        job_id=range(count),
        submit_s=np.sort(rng.integers(1000, 80_000, count)),
        runtime_s=rng.integers(1, 30_000, count),
        estimate_s=rng.choice([1, 7, 60, 3600, 86_400.5], count),
        nodes=rng.integers(1, NODES + 1, count),
        user=rng.integers(-1, 5, count),
        account=rng.integers(-1, 4, count),
        qos=rng.integers(-1, 3, count),
        queue=rng.integers(-1, 3, count),
    )


def records(jobs: JobTable, rng: np.random.Generator) -> Any:
    """Records as the engines fill them, with the fields of both."""
    fields = {**{name: JOB.fields[name][0] for name in JOB.names}, **{n: GPU_JOB.fields[n][0] for n in GPU_JOB.names}}
    job = np.zeros(len(jobs), list(fields.items())).view(np.recarray)
    for name in ("nodes", "user", "account", "qos", "queue"):
        job[name] = jobs[name]
    job["units"] = jobs.size
    delay_s = rng.choice([0, 0, 500], len(jobs))  # of dependent jobs
    job["submit_s"], job["number"] = jobs["submit_s"] + delay_s, np.arange(len(jobs))
    job["since_first_s"] = job["submit_s"] - jobs["submit_s"].min()
    job["estimate_s"] = job["planned_s"] = np.maximum(jobs["estimate_s"], 1.0)
    job["limit_s"] = np.inf
    job["expected_inverse_runtime"] = np.minimum(rng.uniform(0, 1.2, len(jobs)), 1.0)
    job["usage_share"] = rng.uniform(0, 1, len(jobs))
    job["priority"] = rng.integers(-5, 100, len(jobs))
    job["gpu_share"] = rng.choice([0.25, 1.0, 8.0], len(jobs))
    job["attained_s"] = rng.choice([0, 0.5, 400, 9000], len(jobs))
    job["done_s"] = job["attained_s"] * rng.uniform(0.2, 2, len(jobs))
    job["remaining_s"] = np.maximum(job["estimate_s"] - job["done_s"], 1.0)
    job["waited_s"] = NOW - job["submit_s"] - job["attained_s"]
    return job


def of_formula(formula: str, job: Any, jobs: JobTable, parameters: dict[str, Any], uniform: float) -> float:
    symbols = {
        **{name: getattr(math, name) for name in ("log2", "log10", "sqrt")},
        "max": max,
        "min": min,
        "sum": sum,
        "__builtins__": {},
        "a": job.submit_s,
        "f": job.submit_s - jobs["submit_s"].min(),
        "t": NOW,
        "w": NOW - job.submit_s,
        "e": max(job.estimate_s, 1),
        "n": int(job.units),
        "N": NODES,
        "x": job.expected_inverse_runtime,
        "u": job.usage_share,
        "p": job.priority,
        "g": job.gpu_share,
        "s": job.attained_s,
        "d": job.done_s,
        "r": max(job.estimate_s - job.done_s, 1),
        "v": NOW - job.submit_s - job.attained_s,
        "users": len(set(jobs["user"].tolist())),
        "uniform": uniform,
        "share": 0.2,
        "favour": 10.0,
        **parameters,
    }
    if "limits" in parameters:
        symbols["limits"] = [float(limit) for limit in parameters["limits"].split(",")]
    for kind in ("qos", "queue"):
        symbols[f"{kind}_factor"] = parameters.get(f"{kind}_factor", {}).get(str(job[kind]), 0.0)
    symbols["project_priority"] = parameters.get("project_priority", {}).get(str(job.account), 1.0)
    return float(eval(formula, symbols))  # a formula of our own documentation


@pytest.mark.parametrize("name", POLICIES)
def test_the_formula_gives_the_scores_of_the_engine(formulas: dict[str, tuple[str, str]], name: str) -> None:
    rng = np.random.default_rng(1)
    for parameters in PARAMETERS.get(name, [{}]):
        policy = POLICIES[name](**parameters)
        jobs = random_jobs(rng)
        values = policy.parameters if policy.prepare is None else policy.prepare(jobs, CLUSTER)
        values = np.ascontiguousarray(values, np.float64)
        score = getattr(policy.score, "py_func", policy.score)  # a record with the fields of both engines
        uniform = values if name == "random" else np.zeros(len(jobs))
        scores = [score(job, NOW, values) for job in records(jobs, np.random.default_rng(2))]
        stated = [
            of_formula(formulas[name][1], job, jobs, parameters, float(drawn))
            for job, drawn in zip(records(jobs, np.random.default_rng(2)), uniform, strict=True)
        ]
        assert stated == pytest.approx(scores, rel=1e-12)
        assert len(set(scores)) > 1


def test_first_come_first_served_orders_dependent_jobs_by_the_time_they_became_eligible() -> None:
    """Job 1 has all nodes; 2 depends on 1 and becomes eligible at 150; 3 was submitted after 2, at 100."""
    jobs = JobTable(
        job_id=[1, 2, 3, 4],
        submit_s=[0, 10, 100, 20],
        runtime_s=[140, 10, 10, 300],
        nodes=[1, 4, 4, 3],
        after_id=[-1, 1, -1, -1],
        think_s=[0, 10, 0, 0],
    )
    log = kw.simulate(jobs, kw.Cluster.from_nodes(4), "fcfs", "none")
    assert log.eligible_s.tolist() == [0, 150, 100, 20]
    assert log.jobs()["start_s"].tolist() == [0, 330, 320, 20]


def test_equal_scores_are_ordered_by_submission_then_id() -> None:
    jobs = JobTable(job_id=[9, 3, 5], submit_s=[0, 0, 0], runtime_s=[10, 10, 10], nodes=[4, 4, 4])
    log = kw.simulate(jobs, kw.Cluster.from_nodes(4), "smallest", "none")
    assert log.jobs()["start_s"].tolist() == [20, 0, 10]
