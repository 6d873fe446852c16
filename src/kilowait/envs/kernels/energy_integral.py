"""Exact energy, CO2 and cost of node state changes, computed incrementally.

IT power is that of the idle machine, plus the power of each running job above its idle nodes, plus the change of
power by each node state change from its time on. Let X(t) be the integral of 1, the carbon intensity or the price.
The sum up to T is (watts of the idle machine) x X(T) + sum of (watts of a job) x (X(end) - X(start)) + sum of (watts
of a change) x (X(T) - X(time)), so each job and change is added once. A future change, as when nodes boot for a job,
is added at once.
"""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import maybe_inline
from kilowait.engine.kernels.node_sleep import fall_asleep
from kilowait.envs.kernels.energy_env_states import integrals

__all__ = ["integrate_node_energy"]


@maybe_inline
def integrate_node_energy(s: Any, copy: Any, source: Any, keep_node_steps: bool) -> None:
    """Add the recorded node state changes to the sums, and remove them unless they are kept for a log."""
    first_s = s.clock[0].first_submit_s
    control_state = s.power_control_state[0]
    for g in range(len(s.sleep_state)):
        fall_asleep(s, g)
    while copy.counted_node_steps < control_state.node_changes:
        step = s.node_changes[copy.counted_node_steps]
        state_w = source.state_w[step.group]
        watts = step.shutting_down * state_w[0] + step.asleep * state_w[1] + step.waking * state_w[2]
        carbon, price, _ = integrals(source, step.time_s)
        copy.nodes_w += watts
        copy.nodes_j += watts * (step.time_s - first_s)
        copy.nodes_carbon += watts * (carbon - copy.first_carbon)
        copy.nodes_price += watts * (price - copy.first_price)
        copy.counted_node_steps += 1
    if not keep_node_steps:
        control_state.node_changes = 0
        copy.counted_node_steps = 0
