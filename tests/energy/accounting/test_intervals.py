"""Step functions on the grid of a run's events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.accounting.job_power import time_grid
from kilowait.series import Series
from tests.energy.accounting.integrator import execution_log, table

segments = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(1, 1000)), min_size=1, max_size=12)


def test_edges_are_the_events_within_the_horizon() -> None:
    log = execution_log(table(nodes=[1, 1]), [(0, 0, 10), (1, 10, 30)])
    grid = time_grid(log, (5, 25), [[-3, 5, 7, 7, 12], [40.0]])
    assert grid.edge_s.tolist() == [5, 7, 10, 12, 25]
    assert (grid.begin.tolist(), grid.end.tolist()) == ([0, 2], [2, 4])
    assert (grid.ran_s.tolist(), grid.length_s.tolist()) == ([5, 15], [2, 3, 2, 13])


def test_running_power_is_zero_after_the_last_job() -> None:
    """0.1 + 0.2 - 0.1 - 0.2 is not 0 in floating point; an empty machine must have a sum of exactly 0."""
    log = execution_log(table(nodes=[1, 1]), [(0, 0, 10), (1, 0, 20)])
    assert time_grid(log, (0, 30), []).running(np.array([0.1, 0.2])).tolist()[2] == 0


@given(segments)
def test_running_and_integrals_equal_brute_force(rows: list[tuple[int, int, int]]) -> None:
    spans = [(0, float(start), float(start + length)) for start, length, _ in rows]
    log = execution_log(table(nodes=[1]), spans)
    weight = np.array([amount / 7 for _, _, amount in rows])
    signal = Series([-5.0, 4.0, 17.0, 80.0], [3.0, 0.5, 11.0])
    grid = time_grid(log, (2, 50), [signal.edge_s])
    running = grid.running(weight)
    values = grid.series(signal)
    for cell, begin in enumerate(grid.edge_s[:-1]):
        on = [w for w, (_, first, last) in zip(weight, spans, strict=True) if first <= begin < last]
        assert running[cell] == pytest.approx(sum(on), abs=1e-9)
        assert values[cell] == signal.at(begin)
    clipped = [(min(max(first, 2), 50), min(max(last, 2), 50)) for _, first, last in spans]
    expected = [float(signal.integral(first, last)) for first, last in clipped]
    assert grid.over_segments(values) == pytest.approx(expected, rel=1e-9, abs=1e-9)
