"""The prediction-accuracy benchmark: rows of simple predictors equal those of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.prediction_accuracy import LOGS, evaluated, text

from kilowait.predict.baselines import BASELINES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "predictors.md"


def without_seconds(line: str) -> list[str]:
    return line.split()[:-1]


def test_simple_predictor_rows_equal_the_docs(data_dir):
    result = evaluated(
        Sources.find(str(data_dir)), lambda line: None, "KTH-SP2", "runtime", [*sorted(set(BASELINES) - {"rate"})]
    )
    page = [without_seconds(line) for line in PAGE.read_text("utf-8").splitlines() if line]
    output = text({"KTH-SP2, runtime": result}).splitlines()
    assert "KTH-SP2, runtime, recorded: 8,542 of 28,475 jobs, 15 weeks" in PAGE.read_text("utf-8")
    rows = [without_seconds(line) for line in output if line.split(" ")[0] in BASELINES]
    assert len(rows) == 5
    for row in rows:
        assert row in page


def test_every_log_is_in_the_docs():
    page = PAGE.read_text("utf-8")
    for name, log in LOGS.items():
        for target in log.targets:
            assert f"{name}, {target}" in page


def test_error_messages(tmp_path, capsys):
    (tmp_path / "swf").mkdir()
    assert main(["prediction-accuracy", "--data", str(tmp_path), "--logs", "KTH"]) == 2
    assert "unknown log 'KTH'; did you mean 'KTH-SP2'? known: HPC2N, KTH-SP2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tsafrir", "--data", str(tmp_path), "--logs", "KTH-SP2"])
    assert "--logs is only for prediction-accuracy and synthetic-fidelity" in capsys.readouterr().err
