"""Interface of schedulers: job records and choices."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.engine.interface import JOB, Choice, ChoiceKind, PriorityPolicy


def test_job_record_has_no_true_run_time() -> None:
    assert not {"runtime_s", "run_s", "end_s"} & set(JOB.names or ())
    assert JOB.isalignedstruct


def test_choice_constructors() -> None:
    assert Choice.start(3) == Choice(ChoiceKind.START, 3, -1)
    assert Choice.start(3, group=1).group == 1
    assert Choice.reserve(3).kind is ChoiceKind.RESERVE
    assert Choice.hold(3, until_s=60.0).until_s == 60.0
    assert Choice.noop().kind is ChoiceKind.PASS
    assert Choice.backfill().scores is None
    assert Choice.backfill(np.ones(2)).kind is ChoiceKind.BACKFILL


def test_choices_and_policies_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Choice.start(3).job = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        PriorityPolicy("x", lambda job, now, parameters: 0.0).name = "y"  # type: ignore[misc]


def test_policies_do_not_share_default_parameters() -> None:
    one, other = (PriorityPolicy("x", lambda job, now, parameters: 0.0) for _ in range(2))
    assert one.parameters is not other.parameters
    assert (one.compiled, one.time_dependent, one.half_life_s) == (True, False, 0.0)
