"""Small folders of every kind, to be damaged by `benchmarks.fuzz_folders`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kilowait as kw
from kilowait.evaluation.comparison import PolicyScores, cut_windows, pairwise_tests
from kilowait.evaluation.storage import plain_json, save_comparison, save_folder, save_run
from kilowait.experiments.prediction.report import prediction_report, save_prediction_report
from kilowait.experiments.synthetic_score import save_score, score_synthetic
from kilowait.jobs import JobTable
from kilowait.predict.forest import ForestSettings
from kilowait.predict.walk_forward import RefitSchedule
from kilowait.synth import fit_generator, lublin

__all__ = ["GENERATOR_SAMPLES", "SAMPLES", "write_samples"]

_GENERATOR_SETTINGS: dict[str, dict[str, Any]] = {
    "bootstrap": {},
    "copula": {"margin": 50},
    "transformer": {"passes": 1, "width": 8, "layers": 1, "draws": 2},
    "ctgan": {"steps": 2, "width": 8, "kinds": 5, "batch": 20},
    "copulagan": {"steps": 2, "width": 8, "kinds": 5, "batch": 20},
    "tvae": {"steps": 2, "width": 8, "kinds": 5, "batch": 20, "latent": 4},
    "diffusion": {"steps": 2, "width": 8, "kinds": 5, "batch": 20, "layers": 1, "draw_steps": 2},
}
"""Settings of generators that are fitted in less than a second."""


def _log(count: int = 150, seed: int = 1) -> JobTable:
    """Jobs of a few users, with all columns that generators use."""
    jobs = lublin(count, 16, load=0.9, seed=seed)
    random = np.random.default_rng(seed)
    nodes = random.choice([1, 2, 4], count)
    return JobTable(
        job_id=jobs["job_id"],
        submit_s=jobs["submit_s"],
        runtime_s=jobs["runtime_s"],
        estimate_s=np.maximum(random.choice([3600.0, 86400.0], count), jobs["runtime_s"]),
        nodes=nodes,
        user=random.integers(0, 6, count),
        account=random.integers(0, 3, count),
        queue=random.integers(0, 2, count),
        status=random.integers(0, 2, count),
        energy_j=jobs["runtime_s"] * nodes * 200.0,
        labels={"queue": ("short", "long")},
        meta={"max_procs": 16, "unix_start_s": 843_000_000},
    )


def _run(folder: Path) -> None:
    jobs, cluster = _log(), kw.Cluster.from_nodes(16)
    log = kw.simulate(
        jobs, cluster, "saf", "easy", power_controls=kw.PowerControls(sleep={"nodes": kw.SleepPolicy(60, 5, 30)})
    )
    ledger = {"rows_read": 150, "jobs": 150, "folded": 0, "entries": []}
    scenario = {
        "trace": "made",
        "policy": "saf",
        "backfill": "easy",
        "cluster": {"name": "x", "group": [{"name": "nodes", "nodes": 16}]},
    }
    save_run(
        folder,
        log,
        scenario=scenario,
        results={"metrics": kw.metrics(log), "ledger": ledger},
        manifest={"inputs": {"made": None}},
    )


def _gpu_run(folder: Path) -> None:
    groups = (
        kw.NodeGroup("a", 4, gpus=4, gpu_type="A100", node_level=True),
        kw.NodeGroup("b", 2, gpus=8, gpu_type="V100", node_level=True),
    )
    random = np.random.default_rng(0)
    jobs = JobTable(
        job_id=np.arange(60), submit_s=np.sort(random.uniform(0, 3600, 60)), runtime_s=random.uniform(60, 3600, 60),
        nodes=np.ones(60), gpus=random.choice([1, 2, 4], 60),
    )  # fmt: skip
    log = kw.simulate(jobs, kw.Cluster(groups, name="gpus"), "las", "none")
    rows = [
        {"name": group.name, "nodes": group.nodes, "gpus": group.gpus, "gpu_type": group.gpu_type, "node_level": True}
        for group in groups
    ]
    scenario = {"trace": "made", "policy": "las", "cluster": {"name": "gpus", "group": rows}}
    save_run(folder, log, scenario=scenario, results={"gpus": {"metrics": {"mean_rho": 1.0, "max_rho": None}}})


def _comparison(folder: Path) -> None:
    jobs = _log()
    both = [
        kw.compare(
            cut_windows(jobs, 3, window_jobs=30, warmup_jobs=5, seed=0),
            kw.Cluster.from_nodes(16),
            ["fcfs", "saf"],
            trace="one",
        ),
        kw.compare(jobs, kw.Cluster.from_nodes(16), ["sjf"], clairvoyant=True, trace="two"),
    ]
    results = {"traces": [{"lower_bounds": {"mean_wait_s": 1.0}, "gpus": {}}, {"lower_bounds": None}]}
    save_comparison(folder, both, scenario={"x": 1}, results=results, cells=[str(number) for number in range(8)])


def _energy_comparison(folder: Path) -> None:
    import dataclasses

    from kilowait.evaluation.comparison import EnergyResults, PowerCurve, SignalCurve

    comparison = kw.compare(_log(100), kw.Cluster.from_nodes(16), ["fcfs", "saf"], trace="energy")
    metrics = {
        "energy_kwh": 2.0,
        "facility_kwh": 2.5,
        "peak_kw": 3.0,
        "pue": 1.25,
        "least_kwh": 1.0,
        "co2_kg": 1.0,
        "cost": float("nan"),
    }
    states = dict.fromkeys(("jobs", "idle", "asleep", "shutting_down", "waking", "fixed"), 1.0)
    edges = tuple(np.linspace(0, 1e5, 30).tolist())
    curve = PowerCurve(edges, (2e3,) * 29, (3e3,) * 29)
    signal = SignalCurve("carbon intensity", "g/kWh", "GB; average", edges, (250.0,) * 29)
    energy = EnergyResults(((metrics,), (metrics,)), (states, states), (curve, curve), 0, (signal,), ("a note",))
    save_comparison(folder, [dataclasses.replace(comparison, energy=energy)], scenario={}, results={"traces": [{}]})


def _agent(folder: Path, results: dict[str, Any]) -> None:
    def fill(part: Path) -> None:
        (part / "scenario.toml").write_text('[training]\nalgo = "ppo"\nsteps = 6000\n', encoding="utf-8")
        (part / "results.json").write_text(plain_json(results), encoding="utf-8")

    save_folder(folder, fill, kind="agent")


def _batch_agent() -> dict[str, Any]:
    labels, kinds = ("agent", "saf", "fcfs"), ("agent", "rule", "rule")
    values = np.array([(2.0, 2.1, 1.9) * 4, (3.0, 3.2, 2.9) * 4, (9.0, 9.5, 8.0) * 4])
    tests = pairwise_tests(PolicyScores("mean_bsld", labels, values), seed=0)
    interval = {"mean_bsld": {"mean": 2.0, "low": 1.9, "high": 2.1}}
    rows = [
        {"label": label, "kind": kind, "metrics": {"mean_bsld": float(row.mean()), "x": None}, "intervals": interval}
        for label, kind, row in zip(labels, kinds, values, strict=True)
    ]
    job = {"nodes": 4.0, "estimate_s": 7200.0, "wait_s": 60.0}
    part = {"name": "length", "of": "job", "value": -1.0, "usual": 0.5, "moved": 1.5}
    attention = {"jobs": [job, {}], "whole": True, "weights": [[0.2, 0.2, 0.2, 0.4]] * 3}
    case = {"which": "the longest queue", "choices": 12, "margin": 1.0, "usual": -0.25, "chosen": job, "other": {}}
    case |= {"parts": [part, {**part, "of": "whole", "moved": -0.5}], "attention": attention}
    usual = {"name": "length", "of": "job", "meaning": "estimate", "mean": 1.25, "leaning": -1.0}
    history = [
        {
            "number": n,
            "steps": 1000 * n,
            "mean_return": -3.0,
            "metric": None,
            "losses": {"value": 1 / n},
            "validation": 2.0,
        }
        for n in range(1, 4)
    ]
    judged = {
        "trace": "made", "cut": "12 windows", "metric": "mean_bsld", "rows": rows, "judgement": tests.to_dict(),
        "sentences": [], "gap_closed": {"agent": 0.25}, "notes": ["a note"],
    }  # fmt: skip
    explained = {"score": "logits", "choices": 900, "measured": 96, "usual": [usual], "cases": [case]}
    return {"objective": "slowdown=1", "training": history, "explained": explained, "judged": judged}


def _search_agent() -> dict[str, Any]:
    row = {"mean_jct_s": 3600.0, "p95_jct_s": 7200.0, "gpu_utilization": 0.5}
    judged = {
        "windows": 4,
        "window_jobs": 100,
        "policies": {"las": row, "agent": row},
        "ratios": {"agent": [0.5, 0.4, None]},
    }
    history = [{"number": n, "training": 0.9, "validation": 0.8} for n in range(1, 4)]
    return {
        "objective": "jct",
        "training": history,
        "weights": [["length", 0.5, "estimate"]],
        "judged": judged,
        "search_outcome": None,
    }


def _power_agent() -> dict[str, Any]:
    row = {"energy": 2.0, "slowdown": 1.5, "wait_s": 60.0, "p95_wait_s": 600.0}
    judged = {
        "windows": 4, "window_jobs": 100, "objective": "energy", "front": ["saf, dvfs=1.1"],
        "policies": {"agent": row, "saf, none": row, "saf, dvfs=1.1": row},
        "margin": {"objective_ratio": [0.5, 0.4, 0.6], "delay_ratio": [1.0, 0.9, 1.1], "nondominated_share": 1.0},
    }  # fmt: skip
    metrics = {"slowdown": 2.0, "energy": 3.0}
    point = {
        "preference": metrics,
        "metrics": metrics,
        "dominated": False,
        "intervals": {"slowdown": [1.0, 3.0], "energy": [2.0, None]},
    }
    front = {
        "terms": {"slowdown": "mean slowdown", "energy": "energy"}, "units": metrics, "points": [point, point],
        "reference": {"name": "saf", "metrics": metrics, "intervals": None}, "windows": 4, "window_jobs": 100,
    }  # fmt: skip
    return {"objective": "energy", "judged": judged, "front": front, "search_outcome": "The agent is saf."}


def _predictions(folder: Path) -> None:
    online = RefitSchedule(every_s=86400.0, jobs=600, min_jobs=50)
    forest = ForestSettings(trees=4, leaves=15)
    report = prediction_report(
        _log(400), kw.Cluster.from_nodes(16), trace="made", ids=[100], online=online, forest=forest
    )
    save_prediction_report(folder, report, scenario={"trace": "made"}, manifest={})


def _score(folder: Path) -> None:
    real = _log(200)
    score = score_synthetic(real, _log(200, seed=2), held_out=_log(200, seed=3), policies=("fcfs",))
    save_score(folder, score, scenario={"real": "a", "synthetic": "b"}, manifest={})


def _generator(kind: str, folder: Path) -> None:
    fit_generator(_log(), kind, **_GENERATOR_SETTINGS[kind]).save(folder)


GENERATOR_SAMPLES: dict[str, Callable[[Path], None]] = {kind: partial(_generator, kind) for kind in _GENERATOR_SETTINGS}
SAMPLES: dict[str, Callable[[Path], None]] = {
    "run": _run,
    "gpu run": _gpu_run,
    "comparison": _comparison,
    "energy comparison": _energy_comparison,
    "agent": lambda folder: _agent(folder, _batch_agent()),
    "search agent": lambda folder: _agent(folder, _search_agent()),
    "power agent": lambda folder: _agent(folder, _power_agent()),
    "predictions": _predictions,
    "score": _score,
    **GENERATOR_SAMPLES,
}
"""Name to a function that writes such a folder."""


def write_samples(root: Path, names: list[str]) -> dict[str, dict[str, bytes]]:
    """Write the folders below `root`; returns the contents of their files by name."""
    contents = {}
    for name in names:
        folder = root / name.replace(" ", "-")
        SAMPLES[name](folder)
        contents[name] = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        json.loads(contents[name].get("manifest.json", b"{}"))
    return contents
