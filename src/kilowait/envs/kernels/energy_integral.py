"""Exact accounts as time goes by, of nodes that change their state.

IT power is that of the idle machine, plus what each job draws above its idle nodes while it runs, plus what each
change of a node's state adds from its time on. So with X(t) the integral of 1, the carbon intensity or the price since
the beginning, an account up to T is a sum of (watts of the idle machine) x X(T), of (watts of jobs) x (X(end) -
X(start)) and of (watts of changes) x (X(T) - X(time)): nothing has to be looked at again. A change that lies ahead,
as when nodes wake for a job, is reckoned with at once.
"""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import maybe_inline
from kilowait.engine.kernels.node_sleep import fall_asleep
from kilowait.envs.kernels.state_stack_power import integrals

__all__ = ["integrate_node_energy"]


@maybe_inline
def integrate_node_energy(s: Any, copy: Any, source: Any, keep: bool) -> None:
    """Take account of what nodes have been written down to do; and forget it, unless it is kept for a log."""
    first_s = s.clock[0].first_submit_s
    lever = s.lever[0]
    for g in range(len(s.sleepers)):
        fall_asleep(s, g)
    while copy.noted < lever.steps:
        step = s.steps[copy.noted]
        state_w = source.state_w[step.group]
        watts = step.shutting_down * state_w[0] + step.asleep * state_w[1] + step.waking * state_w[2]
        carbon, price, _ = integrals(source, step.time_s)
        copy.nodes_w += watts
        copy.nodes_j += watts * (step.time_s - first_s)
        copy.nodes_carbon += watts * (carbon - copy.first_carbon)
        copy.nodes_price += watts * (price - copy.first_price)
        copy.noted += 1
    if not keep:
        lever.steps = 0
        copy.noted = 0
