"""The door: what a scheduler may know and choose."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.engine.interface import (
    JOB,
    Choice,
    ChoiceKind,
    PriorityPolicy,
)


def test_the_truth_is_not_among_what_a_decider_knows() -> None:
    assert not {"runtime_s", "run_s", "end_s"} & set(JOB.names or ())
    assert JOB.isalignedstruct


def test_choices_say_what_they_are() -> None:
    assert Choice.start(3) == Choice(ChoiceKind.START, 3, -1)
    assert Choice.start(3, group=1).group == 1
    assert Choice.reserve(3).kind is ChoiceKind.RESERVE
    assert Choice.hold(3, until_s=60.0).until_s == 60.0
    assert Choice.noop().kind is ChoiceKind.PASS
    assert Choice.backfill().scores is None
    assert Choice.backfill(np.ones(2)).kind is ChoiceKind.BACKFILL


def test_choices_and_rules_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Choice.start(3).job = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        PriorityPolicy("x", lambda job, now, parameters: 0.0).name = "y"  # type: ignore[misc]


def test_rules_do_not_share_their_parameters() -> None:
    one, other = (PriorityPolicy("x", lambda job, now, parameters: 0.0) for _ in range(2))
    assert one.parameters is not other.parameters
    assert (one.compiled, one.time_dependent, one.half_life_s) == (True, False, 0.0)
