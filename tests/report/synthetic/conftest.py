"""Folders on small synthetic workloads: the real jobs again a week later, and one that says little."""

from __future__ import annotations

import pytest

from kilowait.experiments.synthetic_score import save_score, score
from kilowait.report import write_report
from tests.synth.test_generator import log

NASTY = "</script><b onload=x>"


@pytest.fixture(scope="session")
def copied():
    """A copy of the jobs it was learned from, a week later, beside others of the same kind."""
    real = log(500)
    later = real.with_columns(submit_s=real["submit_s"] + 7 * 86400)
    return score(real, later, held_out=log(500, seed=1), policies=("fcfs",))


@pytest.fixture(scope="session")
def bare():
    """Without users, energy, queues, GPUs, status and held-out jobs; of a clock without a date."""
    lacking = dict.fromkeys(("user", "account", "energy_j", "queue", "gpus", "status"))
    real, made = (log(300, seed=seed).with_columns(**lacking) for seed in (0, 1))
    return score(real, made, policies=("fcfs",))


def saved(path, found, **named):
    """A folder of kind synthetic."""
    scenario = {"real": "logs/real.swf.gz", "synthetic": "made.swf", **named}
    return save_score(path, found, scenario=scenario, manifest={"date": "today"})


@pytest.fixture(scope="session")
def drawn(copied, tmp_path_factory):
    """The page on the copy, and the folder of its figures."""
    above = tmp_path_factory.mktemp("synthetic")
    folder = saved(above / "first", copied, synthetic=f"made{NASTY}", held_out="other.swf")
    figures = above / "figures"
    return write_report([folder], above / "page.html", figures=figures), figures
