"""Fixtures: scores of small synthetic workloads, one a copy of the real jobs, one with minimal columns."""

from __future__ import annotations

import pytest

from kilowait.experiments.synthetic_score import save_score, score_synthetic
from kilowait.report import write_report
from tests.synth.test_generator import log

NASTY = "</script><b onload=x>"


@pytest.fixture(scope="session")
def copied():
    """A copy of the training jobs a week later, with held-out jobs of the same distribution."""
    real = log(500)
    later = real.with_columns(submit_s=real["submit_s"] + 7 * 86400)
    return score_synthetic(real, later, held_out=log(500, seed=1), policies=("fcfs",))


@pytest.fixture(scope="session")
def minimal():
    """A score without users, energy, queues, GPUs, status, held-out jobs and start date."""
    missing = dict.fromkeys(("user", "account", "energy_j", "queue", "gpus", "status"))
    real, synthetic = (log(300, seed=seed).with_columns(**missing) for seed in (0, 1))
    return score_synthetic(real, synthetic, policies=("fcfs",))


def saved(path, result, **named):
    """Save a score as a folder."""
    scenario = {"real": "logs/real.swf.gz", "synthetic": "made.swf", **named}
    return save_score(path, result, scenario=scenario, manifest={"date": "today"})


@pytest.fixture(scope="session")
def page_and_figures(copied, tmp_path_factory):
    """The page on the copy and the folder of its figures."""
    parent = tmp_path_factory.mktemp("synthetic")
    folder = saved(parent / "first", copied, synthetic=f"made{NASTY}", held_out="other.swf")
    figures = parent / "figures"
    return write_report([folder], parent / "page.html", figures=figures), figures
