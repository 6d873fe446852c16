"""Fixtures: hand-written folders of agents, without training."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kilowait.evaluation.comparison import PolicyScores, pairwise_tests
from kilowait.evaluation.storage import save_folder

NASTY = "</script><b onload=x>"
LABELS = ("agent", "saf", "fcfs")


def evaluation(values=((2.0, 2.1, 1.9) * 8, (3.0, 3.2, 2.9) * 8, (9.0, 9.5, 8.0) * 8)):
    """The evaluation of three policies on as many windows as each has values."""
    values = np.array(values)
    tests = pairwise_tests(PolicyScores("mean_bsld", LABELS, values), seed=0)
    kinds = ("agent", "rule", "rule")
    rows = [
        {
            "label": label,
            "kind": kind,
            "metrics": {"mean_bsld": float(row.mean()), "mean_wait_s": 60.0 * (index + 1), "starved_jobs": None},
            "intervals": {"mean_bsld": {key: getattr(tests.means[index], key) for key in ("mean", "low", "high")}},
        }
        for index, (label, kind, row) in enumerate(zip(LABELS, kinds, values, strict=True))
    ]
    rows.append({**rows[1], "label": "saf, perfect estimates", "kind": "clairvoyant"})
    return {
        "trace": f"made{NASTY}",
        "cut": "24 windows of 60 jobs",
        "metric": "mean_bsld",
        "rows": rows,
        "judgement": tests.to_dict(),
        "sentences": [],
        "gap_closed": {"agent": 0.25},
        "notes": [f"a note {NASTY}"],
    }


def part(name, of, value, usual, moved):
    return {"name": name, "of": of, "value": value, "usual": usual, "moved": moved}


def explained(attention=True, whole=True):
    """Feature attribution with two explained decisions; the first with attention."""
    parts = [part("length", "job", -1.0, 0.5, 1.5), part(f"fits{NASTY}", "job", 0.0, 0.5, -0.25)]
    usual = [
        {"name": "length", "of": "job", "meaning": "ln <estimate>", "mean": 1.25, "leaning": -1.0},
        {"name": f"fits{NASTY}", "of": "job", "meaning": "", "mean": 0.5, "leaning": 0.5},
    ]
    if whole:
        parts.append(part("free", "whole", 0.25, 0.5, 0.0))
        usual.append({"name": "free", "of": "whole", "meaning": "free nodes", "mean": 0.0, "leaning": 0.0})
    job = {"nodes": 4.0, "estimate_s": 7200.0, "wait_s": 60.0}
    weights = [[0.2, 0.2, 0.2, 0.4], [0.1, 0.6, 0.1, 0.2], [0.3, 0.3, 0.3, 0.1]]
    attention_data = {"jobs": [job, {}], "whole": True, "weights": weights}
    case = {"which": "the longest queue", "choices": 12, "margin": 1.0, "usual": -0.25, "chosen": job}
    case |= {"other": {"nodes": 1.0, "wait_s": 0.0}, "parts": parts, "attention": attention_data if attention else None}
    second = {**case, "which": "the most doubtful choice", "margin": 1e-6, "other": {}, "attention": None}
    score = "logits" if whole else "scores"
    return {"score": score, "choices": 900, "measured": 96, "usual": usual, "cases": [case, second]}


def updates(count=6):
    """Training history of PPO with some missing values."""
    return [
        {
            "number": n,
            "steps": 1000 * n,
            "mean_return": -30.0 + n,
            "metric": None if n == 2 else 30.0 - n,
            "losses": {"policy": -0.01 * n, "value": 1 / n},
            "entropy": 2.0 - 0.1 * n,
            "kl": None,
            "validation": 20.0 - n if n % 2 == 0 else None,
            "best": None,
        }
        for n in range(1, count + 1)
    ]


def generations(count=6):
    """Training history of CMA-ES."""
    return [
        {"number": n, "training": 1 - n / 50, "validation": None if n % 2 else 1 - n / 40} for n in range(1, count + 1)
    ]


@pytest.fixture
def agent_folder(tmp_path):
    """A function that writes the folder of an agent with given results."""

    def write(name, results, scenario='[training]\nalgo = "ppo"\nsteps = 6000\n'):
        def fill(folder):
            (folder / "scenario.toml").write_text(scenario, encoding="utf-8")
            (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")

        return save_folder(tmp_path / name, fill, kind="agent")

    return write
