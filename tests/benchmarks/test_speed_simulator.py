"""Tests of the simulator benchmark: which measurements it makes, not their values."""

from __future__ import annotations

import json
import sys

import pytest
from benchmarks.speed import gpu_engine, measurement, other_simulators, power_controls, simulator
from benchmarks.speed.measurement import BenchResult

import kilowait as kw
from kilowait.errors import InputError


def test_targets():
    assert BenchResult("x", 5.0, target=4.0).met is True
    assert BenchResult("x", 5.0, target=4.0, less_is_better=True).met is False
    assert BenchResult("x", 5.0).met is None and BenchResult("x", None, target=4.0).met is None
    assert BenchResult("x", 5.0, "s", 4.0).to_dict()["met"] is True


def test_best_of_several():
    calls = []
    assert measurement.best_s(lambda: calls.append(1), quick=True) >= 0
    assert len(calls) > 3


def test_reference_simulator_is_measured_in_a_checkout_only(project, monkeypatch):
    jobs = kw.lublin(40, 16, load=1.0)
    for policy, backfill, _ in simulator.POLICIES.values():
        seconds = other_simulators.reference_simulator_s(jobs, 16, policy, backfill)
        assert seconds is not None and seconds > 0
    monkeypatch.setattr(kw, "__file__", "/nowhere/lib/kilowait/__init__.py")
    assert other_simulators.reference_simulator_s(jobs, 16, "fcfs", "none") is None


def test_missing_accasim_is_reported(monkeypatch):
    monkeypatch.setattr(other_simulators, "find_spec", lambda name: None)
    message = other_simulators.accasim_s(kw.lublin(5, 4), 4, "none")
    assert isinstance(message, str) and "not installed" in message


def test_failing_accasim_is_reported(monkeypatch):
    monkeypatch.setattr(other_simulators, "find_spec", lambda name: True)
    monkeypatch.setattr(other_simulators, "_ACCASIM", "raise SystemExit('it is broken')")
    message = other_simulators.accasim_s(kw.lublin(5, 4), 4, "none")
    assert isinstance(message, str) and "it is broken" in message


def test_failing_python_process_is_an_error():
    with pytest.raises(InputError, match="ended with 3"):
        measurement.python_output("-c", "raise SystemExit(3)")
    assert measurement.python_output("-c", "import os; print(os.environ['X'])", X="y") == "y\n"


def test_data_folder_must_contain_swf_logs(tmp_path, monkeypatch):
    monkeypatch.delenv("KILOWAIT_DATA", raising=False)
    assert simulator._data_folder(None) is None
    with pytest.raises(InputError, match="no folder swf/"):
        simulator._data_folder(tmp_path)
    (tmp_path / "swf").mkdir()
    assert [m.value for m in simulator._real_logs(tmp_path, quick=True)] == [None, None, None]
    assert [m.value for m in simulator._power_controls("SDSC-SP2", tmp_path / "none", quick=True)] == [None]
    assert next(simulator._curie(tmp_path)).value is None


def test_all_benchmarks_on_small_logs(monkeypatch, tmp_path):
    """All benchmarks, with real logs replaced by small ones; every measurement is made once."""
    (tmp_path / "swf").mkdir()
    for file in (simulator.LUBLIN_256, *simulator.REAL_LOGS.values(), simulator.CURIE):
        kw.write_trace(kw.lublin(30, 256), tmp_path / "swf" / file)
    for module in (measurement, simulator):
        monkeypatch.setattr(module, "best_s", lambda call, **_: (call(), 1.0)[1])

    def python(*arguments, **_):
        if len(arguments) == 3:
            return "[1.0, 5e8]"
        return "[1.4, 1.6]" if "benchmarks.speed.power_controls" in arguments else "0.1"

    monkeypatch.setattr(simulator, "python_output", python)
    monkeypatch.setattr(other_simulators, "REFERENCE_JOBS", 20)
    monkeypatch.setattr(gpu_engine, "first_fit_s", lambda count: 7.0)
    monkeypatch.setattr(gpu_engine, "PODS", 30)
    monkeypatch.setattr(other_simulators, "accasim_s", lambda *_: 2.0)
    results = list(simulator.run_benchmarks(data=tmp_path))
    names = [result.name for result in results]
    assert len(set(names)) == len(names)
    for part in ("lublin_256, FCFS + EASY", "Lublin model, FCFS", "HPC2N",
                 "Lublin model, sleep", "SDSC-SP2, the same", "reference simulator", "AccaSim", "49,152", "memory",
                 "1,000,000 jobs of one GPU",
                 "synthetic pods", "Curie, read", "import kilowait", "kernels cached", "not compiled"):  # fmt: skip
        assert any(part in name for name in names), part
    assert all(result.value is not None for result in results)


def test_gpu_cluster_benchmark_on_few_jobs(monkeypatch, data_dir):
    for module in (measurement, simulator):
        monkeypatch.setattr(module, "best_s", lambda call, **_: (call(), 1.0)[1])
    first, pods = simulator._gpu_cluster(200, data_dir)
    assert first.value > 0 and first.target is None and first.name.startswith("200 jobs")
    assert pods.name.startswith("openb pods") and pods.note == "7,255 pods" and pods.met is True


def test_interleaved_ratio_uses_the_best_time_of_both(monkeypatch):
    seconds = iter([2.0, 6.0, 1.0, 4.0, 3.0, 5.0])
    monkeypatch.setattr(measurement, "best_s", lambda call, **_: next(seconds))
    assert measurement.interleaved_ratio(lambda: None, lambda: None, quick=True) == 4.0


def test_power_controls_are_measured_relative_to_a_plain_run(monkeypatch, capsys, tmp_path):
    calls = []
    monkeypatch.setattr(measurement, "best_s", lambda call, **_: (calls.append(call), call(), 1.0)[2])
    kw.write_trace(kw.lublin(30, 16), tmp_path / "few.swf")
    power_controls.main(str(tmp_path / "few.swf"), "quick")
    assert json.loads(capsys.readouterr().out) == [1.0] * len(simulator.POWER_CONTROLS)
    assert len(calls) == 6 * len(simulator.POWER_CONTROLS)
    monkeypatch.setattr(simulator, "python_output", lambda *arguments, **_: "[1.4, 1.6]")
    results = list(simulator._power_controls("SDSC-SP2", None, quick=True))
    assert [result.met for result in results] == [True, False]
    assert all(len(result.name) < 48 for result in results)


def test_large_run_reports_time_and_memory():
    seconds, memory = simulator._large_run(200)
    assert seconds.value is not None and seconds.value > 0
    if sys.platform == "linux":
        assert memory.value is not None and 0.01 < memory.value < 2
