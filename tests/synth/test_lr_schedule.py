"""The learning rate rises and falls for any number of steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kilowait.synth.lr_schedule import one_cycle_schedule


def learning_rates(steps, max_rate=0.5):
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], max_rate)
    schedule, rates = one_cycle_schedule(optimizer, max_rate, steps), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return np.array(rates)


def test_rate_rises_in_the_first_tenth_and_then_falls():
    rates = learning_rates(200)
    top = int(rates.argmax())
    assert 15 <= top <= 25 and rates[top] == pytest.approx(0.5, rel=0.01)
    assert (np.diff(rates[: top + 1]) > 0).all() and (np.diff(rates[top:]) < 0).all()


@pytest.mark.parametrize("steps", range(1, 25))
def test_any_number_of_steps(steps):
    rates = learning_rates(steps)
    assert len(rates) == steps and (rates > 0).all() and (rates <= 0.5).all()
