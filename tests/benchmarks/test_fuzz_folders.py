"""Damaged folders are read or refused in words: a small part of `benchmarks.fuzz_folders`."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.folder_damage import damaged
from benchmarks.folder_samples import write_samples

from benchmarks import fuzz_folders


@pytest.mark.parametrize(
    "names", [["run", "gpu run", "comparison", "energy comparison"], ["agent", "power agent", "bootstrap", "copula"]]
)
def test_damaged_folders_are_refused_in_words(names):
    counts, findings = fuzz_folders.fuzz(60, 7, names)
    assert findings == []
    assert counts["refused"] > counts["read"] > 0 and sum(counts.values()) == 60


def test_a_change_that_is_not_noticed_is_found(tmp_path, monkeypatch):
    content = write_samples(tmp_path, ["agent"])["agent"]
    monkeypatch.setattr(fuzz_folders, "_read", lambda name, folder, rng: None)
    (tmp_path / "case").mkdir()
    outcomes = []
    for case in range(40):
        try:
            outcomes.append(fuzz_folders._run_case("agent", content, 0, case, tmp_path / "case"))
        except AssertionError as found:
            outcomes.append(str(found))
    assert "read" in outcomes and any("is not noticed" in outcome for outcome in outcomes)


def test_the_same_case_is_the_same_damage(tmp_path):
    content = write_samples(tmp_path, ["comparison"])["comparison"]
    for case in range(20):
        one, other = (
            damaged(content, tmp_path / f"{case}-{number}", np.random.default_rng([0, case])) for number in range(2)
        )
        assert one == other
