"""The benchmark of predictions without measured power: rows of every target and model, and the text output."""

from __future__ import annotations

import numpy as np
from benchmarks.reproduce.unmetered_power import results, text, without_measurements

from tests.predict.example_logs import repetitive_log


def test_every_target_and_model_has_rows():
    jobs = repetitive_log()
    jobs = jobs.with_columns(energy_j=jobs["runtime_s"] * np.choose(jobs["user"], [110.0, 150.0, 190.0]))
    assert "energy_j" not in without_measurements(jobs)
    rows = results(jobs, models=("boosting:median",))
    assert [row["name"] for row in rows] == [
        "power, boosting:median, not measured",
        "power, boosting:median, measured",
        "power, median of the metered log",
        "energy, boosting:median, not measured",
        "energy, boosting:median, measured",
        "energy, median of the metered log",
    ]
    assert all(row["jobs"] == 270 for row in rows)
    assert min(rows[0]["accuracy"], rows[1]["accuracy"]) > rows[2]["accuracy"]
    assert text(rows).splitlines()[0] == "Kabre, last 30 %: 270 jobs with power"
