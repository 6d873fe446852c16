"""A part of benchmarks/fuzz_models.py, and a check that it detects errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fuzz_models, model_samples

pytest.importorskip("lightgbm")
pytest.importorskip("torch")


@pytest.mark.slow
def test_fuzzing_finds_no_error() -> None:
    counts, findings = fuzz_models.fuzz(150, seed=20)
    assert not findings
    assert counts["accepted"] + counts["refused"] == 150
    assert counts["accepted"] > 5


def test_intact_samples_are_accepted(tmp_path: Path) -> None:
    for kind in ("predictor boosting:mean", "linear batch agent", "state of a search"):
        model_samples.SAMPLES[kind].write(tmp_path)
        model_samples.SAMPLES[kind].use(tmp_path)
        for file in tmp_path.iterdir():
            file.unlink()


def test_fuzzing_detects_errors_and_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process reports an exception, and its end by a signal is a finding."""

    class Child(fuzz_models.subprocess.Popen):  # type: ignore[type-arg]
        """A child process that runs other code."""

        def __init__(self, command: list[str], **options: object) -> None:
            first = int(command[2].split("run_cases(")[1].split(",")[0])
            code = (
                "import json, os; print(json.dumps('ready')); "
                f"print(json.dumps([{first}, 'agent', 'bytes', 'finding: KeyError'])); "
                "import sys; sys.stdout.flush(); os.kill(os.getpid(), 11)"
            )
            super().__init__([command[0], "-c", code], **options)

    monkeypatch.setattr(fuzz_models.subprocess, "Popen", Child)
    counts, findings = fuzz_models.fuzz(4, seed=0)
    assert counts["finding"] == 4
    assert [("KeyError" in finding, "exit status -11" in finding) for finding in findings] == [
        (True, False), (False, True), (True, False), (False, True),
    ]  # fmt: skip
