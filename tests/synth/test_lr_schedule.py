"""Rates rise and fall, however few steps there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kilowait.synth.lr_schedule import one_cycle_schedule


def taken(steps, highest=0.5):
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], highest)
    rates, found = one_cycle_schedule(optimizer, highest, steps), []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        rates.step()
    return np.array(found)


def test_they_rise_in_the_first_tenth_and_then_fall():
    rates = taken(200)
    top = int(rates.argmax())
    assert 15 <= top <= 25 and rates[top] == pytest.approx(0.5, rel=0.01)
    assert (np.diff(rates[: top + 1]) > 0).all() and (np.diff(rates[top:]) < 0).all()


@pytest.mark.parametrize("steps", range(1, 25))
def test_any_number_of_steps(steps):
    rates = taken(steps)
    assert len(rates) == steps and (rates > 0).all() and (rates <= 0.5).all()
