"""Scenario files: a run is repeated from the scenario.toml of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.scenario import run_scenario
from kilowait.experiments.scenario_file import read_scenario, scenario_of_file
from kilowait.experiments.settings import GpuOptions, PowerSettings, Scenario
from kilowait.files.documents import to_toml


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("lublin:60:16:0.9:3", policy="sjf", backfill=2, at_limit="kill", load=0.8, jobs="10:50"),
        Scenario(
            "lublin:60:16:0.9:3",
            power=PowerSettings("taurus", log_start="2020-01-01", repeat_signals=True),
            power_controls="sleep=timeout:300",
        ),
        Scenario(
            "gpu:40:gpu-mixed:0.9:3",
            policy="las",
            placement="best",
            gpu=GpuOptions(checkpoint_interval="30m", migrate=False),
        ),
    ],
    ids=["batch", "power", "gpus"],
)
def test_a_recorded_run_is_repeated(tmp_path: Path, scenario: Scenario) -> None:
    first = run_scenario(scenario)
    path = tmp_path / "scenario.toml"
    path.write_text(to_toml(first.resolved()))
    again = run_scenario(read_scenario(path))
    assert again.resolved() == first.resolved()
    assert again.cluster == first.cluster
    assert again.log.to_arrow().equals(first.log.to_arrow())
    assert dict(again.log.run) == dict(first.log.run)


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('trace = "lublin:20:8"\npolicy = "saf"\ncluster = "nodes:8"\n')
    assert read_scenario(path) == Scenario("lublin:20:8", policy="saf", cluster="nodes:8")
    assert scenario_of_file(Scenario(str(path))) == read_scenario(path)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('policy = "saf"', InputError, "trace is missing"),
        ('trace = "a.swf"\npolcy = "saf"', UnknownNameError, "scenario of one run: 'polcy'; did you mean 'policy'"),
        ('traces = ["a.swf"]', UnknownNameError, "which must be the scenario of one run: 'traces'"),
        ('trace = "a.swf"\nload = "high"', InputError, "load is 'high'; it must be a number"),
        ('trace = "a.swf"\n[power]\npowr = "x"', UnknownNameError, r"key of \[power\] .*did you mean 'power'"),
        ('trace = "a.swf"\n[gpu]\npreempt = "yes"', InputError, "preempt is 'yes'; it must be true or false"),
        ('trace = "a.swf"\nplacement = "emptiest"', UnknownNameError, "unknown placement rule 'emptiest'"),
        ("trace = ", InputError, "is damaged"),
    ],
)
def test_invalid_files(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read_scenario(path)


def test_settings_beside_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--backfill-order is given beside x\.toml, which states all settings"):
        scenario_of_file(Scenario("x.toml", backfill_order="sjf"))
    with pytest.raises(InputError, match="cannot read the scenario .*No such file"):
        read_scenario(tmp_path / "none.toml")
