"""Tests of the simulator benchmark: which measurements it makes, not their values."""

from __future__ import annotations

import json
import sys

import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.experiments import bench, bench_gpu_engine, bench_other_simulators, bench_power_controls
from kilowait.experiments.bench import BenchResult


def test_targets():
    assert BenchResult("x", 5.0, target=4.0).met is True
    assert BenchResult("x", 5.0, target=4.0, less_is_better=True).met is False
    assert BenchResult("x", 5.0).met is None and BenchResult("x", None, target=4.0).met is None
    assert BenchResult("x", 5.0, "s", 4.0).to_dict()["met"] is True


def test_best_of_several():
    calls = []
    assert bench.best_s(lambda: calls.append(1), quick=True) >= 0
    assert len(calls) > 3


def test_reference_simulator_is_measured_in_a_checkout_only(project, monkeypatch):
    jobs = kw.lublin(40, 16, load=1.0)
    for policy, backfill, _ in bench.POLICIES.values():
        seconds = bench_other_simulators.reference_simulator_s(jobs, 16, policy, backfill)
        assert seconds is not None and seconds > 0
    monkeypatch.setattr(kw, "__file__", "/nowhere/lib/kilowait/__init__.py")
    assert bench_other_simulators.reference_simulator_s(jobs, 16, "fcfs", "none") is None


def test_missing_accasim_is_reported(monkeypatch):
    monkeypatch.setattr(bench_other_simulators, "find_spec", lambda name: None)
    message = bench_other_simulators.accasim_s(kw.lublin(5, 4), 4, "none")
    assert isinstance(message, str) and "not installed" in message


def test_failing_accasim_is_reported(monkeypatch):
    monkeypatch.setattr(bench_other_simulators, "find_spec", lambda name: True)
    monkeypatch.setattr(bench_other_simulators, "_ACCASIM", "raise SystemExit('it is broken')")
    message = bench_other_simulators.accasim_s(kw.lublin(5, 4), 4, "none")
    assert isinstance(message, str) and "it is broken" in message


def test_failing_python_process_is_an_error():
    with pytest.raises(InputError, match="ended with 3"):
        bench._python("-c", "raise SystemExit(3)")
    assert bench._python("-c", "import os; print(os.environ['X'])", X="y") == "y\n"


def test_data_folder_must_contain_swf_logs(tmp_path, monkeypatch):
    monkeypatch.delenv("KILOWAIT_DATA", raising=False)
    assert bench._data_folder(None) is None
    with pytest.raises(InputError, match="no folder swf/"):
        bench._data_folder(tmp_path)
    (tmp_path / "swf").mkdir()
    assert [m.value for m in bench._real_logs(tmp_path, quick=True)] == [None, None, None]
    assert [m.value for m in bench._power_controls("SDSC-SP2", tmp_path / "none", quick=True)] == [None]
    assert next(bench._curie(tmp_path)).value is None


def test_all_benchmarks_on_small_logs(monkeypatch, tmp_path):
    """All benchmarks, with real logs replaced by small ones; every measurement is made once."""
    (tmp_path / "swf").mkdir()
    for file in (bench.LUBLIN_256, *bench.REAL_LOGS.values(), bench.CURIE):
        kw.write_trace(kw.lublin(30, 256), tmp_path / "swf" / file)
    monkeypatch.setattr(bench, "best_s", lambda call, **_: (call(), 1.0)[1])

    def python(*arguments, **_):
        if len(arguments) == 3:
            return "[1.0, 5e8]"
        return "[1.4, 1.6]" if "kilowait.experiments.bench_power_controls" in arguments else "0.1"

    monkeypatch.setattr(bench, "_python", python)
    monkeypatch.setattr(bench_other_simulators, "REFERENCE_JOBS", 20)
    monkeypatch.setattr(bench_gpu_engine, "first_fit_s", lambda count: 7.0)
    monkeypatch.setattr(bench_gpu_engine, "PODS", 30)
    monkeypatch.setattr(bench_other_simulators, "accasim_s", lambda *_: 2.0)
    results = list(bench.run_benchmarks(data=tmp_path))
    names = [result.name for result in results]
    assert len(set(names)) == len(names)
    for part in ("lublin_256, FCFS + EASY", "Lublin model, FCFS", "HPC2N",
                 "Lublin model, sleep", "SDSC-SP2, the same", "reference simulator", "AccaSim", "49,152", "memory",
                 "1,000,000 jobs of one GPU",
                 "synthetic pods", "Curie, read", "import kilowait", "kernels cached", "not compiled"):  # fmt: skip
        assert any(part in name for name in names), part
    assert all(result.value is not None for result in results)


def test_gpu_cluster_benchmark_on_few_jobs(monkeypatch, data_dir):
    monkeypatch.setattr(bench, "best_s", lambda call, **_: (call(), 1.0)[1])
    first, pods = bench._gpu_cluster(200, data_dir)
    assert first.value > 0 and first.target is None and first.name.startswith("200 jobs")
    assert pods.name.startswith("openb pods") and pods.note == "7,255 pods" and pods.met is True


def test_interleaved_ratio_uses_the_best_time_of_both(monkeypatch):
    seconds = iter([2.0, 6.0, 1.0, 4.0, 3.0, 5.0])
    monkeypatch.setattr(bench, "best_s", lambda call, **_: next(seconds))
    assert bench.interleaved_ratio(lambda: None, lambda: None, quick=True) == 4.0


def test_power_controls_are_measured_relative_to_a_plain_run(monkeypatch, capsys, tmp_path):
    calls = []
    monkeypatch.setattr(bench, "best_s", lambda call, **_: (calls.append(call), call(), 1.0)[2])
    kw.write_trace(kw.lublin(30, 16), tmp_path / "few.swf")
    bench_power_controls.main(str(tmp_path / "few.swf"), "quick")
    assert json.loads(capsys.readouterr().out) == [1.0] * len(bench.POWER_CONTROLS)
    assert len(calls) == 6 * len(bench.POWER_CONTROLS)
    monkeypatch.setattr(bench, "_python", lambda *arguments, **_: "[1.4, 1.6]")
    results = list(bench._power_controls("SDSC-SP2", None, quick=True))
    assert [result.met for result in results] == [True, False]
    assert all(len(result.name) < 48 for result in results)


def test_large_run_reports_time_and_memory():
    seconds, memory = bench._large_run(200)
    assert seconds.value is not None and seconds.value > 0
    if sys.platform == "linux":
        assert memory.value is not None and 0.01 < memory.value < 2
