"""Tests of policies that a Python file defines: rule:FILE.py:NAME."""

from __future__ import annotations

from pathlib import Path

import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.policies import resolve_policy
from kilowait.experiments.scenario import run_scenario
from kilowait.experiments.settings import Scenario

TEXT = """
import kilowait as kw

@kw.policy
def area(job, now):
    return job.estimate_s * job.nodes

def widest(view):
    fits = [job for job in view.waiting if job["nodes"] <= view.free[0]]
    return kw.Choice.start(max(fits, key=lambda job: job["nodes"])["number"]) if fits else None
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_priority_function_of_a_file(file: Path) -> None:
    area = run_scenario(Scenario("lublin:200:32:0.9:1", policy=f"rule:{file}:area")).log
    saf = run_scenario(Scenario("lublin:200:32:0.9:1", policy="saf")).log
    fcfs = run_scenario(Scenario("lublin:200:32:0.9:1", policy="fcfs")).log
    assert area.run["policy"] == "area"
    assert (area.jobs()["start_s"] == saf.jobs()["start_s"]).all()
    assert (area.jobs()["start_s"] != fcfs.jobs()["start_s"]).any()


def test_view_function_of_a_file(file: Path) -> None:
    jobs = kw.lublin(60, 16, load=0.9, seed=1)
    log = kw.simulate(jobs, kw.Cluster.from_nodes(16), resolve_policy(f"rule:{file}:widest"))
    assert log.run["policy"] == "widest" and len(log.jobs()) == 60


def test_errors_name_the_file_and_its_policies(file: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'area'.*known: area, widest"):
        resolve_policy(f"rule:{file}:aera")
    with pytest.raises(InputError, match="there is no file 'no.py'"):
        resolve_policy("rule:no.py:area")
    with pytest.raises(InputError, match="is written rule:FILE.py:NAME"):
        resolve_policy("rule:mine.py")
    file.write_text("import nothing_of_that_name", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be run: ModuleNotFoundError"):
        resolve_policy(f"rule:{file}:area")
