"""Energy results of comparisons and of single runs, as stored and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.controls.parse import DEFAULT_SHIFT, DEFAULT_SLOWDOWN
from kilowait.evaluation.comparison import EnergyResults, PolicyConfig, PowerCurve, SignalCurve, Windows
from kilowait.experiments.gpu_options import speeds_for
from kilowait.experiments.gpu_power_cap import DEFAULT_GPU_CAPS, gpu_cap_share, parse_gpu_power_caps
from kilowait.experiments.power_context import PowerContext
from kilowait.jobs import ExecutionLog

__all__ = ["accounts_to_dict", "compute_energy_results", "default_control_sets"]

BINS = 480
"""Time bins of the power curves in reports."""


def compute_energy_results(
    context: PowerContext,
    windows: Windows,
    policies: Sequence[PolicyConfig],
    logs: Callable[[int, int], ExecutionLog],
    speeds: str = "auto",
) -> EnergyResults:
    """Energy metrics of every policy in every window, and power curves of the first window.

    In each window all policies are accounted over the same time, from the first evaluated submission to the last end
    of any of them; nodes that finish earlier are idle or asleep. `least_kwh` is the lower bound of the energy of the
    window's evaluated jobs, without idle nodes; on GPU clusters at these `speeds`, with the best cap of any policy.
    """
    metrics: list[list[dict[str, float]]] = [[] for _ in policies]
    states: list[list[dict[str, float]]] = [[] for _ in policies]
    curves: list[PowerCurve] = []
    signals: tuple[SignalCurve, ...] = ()
    notes: list[str] = []
    caps = {gpu_cap_share(config.power_controls) for config in policies}
    for number, window in enumerate(windows):
        window_logs = [logs(policy, number) for policy in range(len(policies))]
        start_s = float(window.jobs["submit_s"][window.warmup])
        evaluated = window.jobs[window.warmup :]
        gpu_speeds = speeds_for(speeds, evaluated, context.cluster) if context.cluster.node_level else None
        minimum_kwh = context.minimum_kwh(evaluated, gpu_speeds, caps)
        end_s = max((float(log.end_s.max()) for log in window_logs if len(log)), default=start_s)
        for policy, log in enumerate(window_logs):
            accounts = context.account(log, policies[policy].power_controls, (start_s, end_s))
            metrics[policy].append({**accounts.metrics(), "least_kwh": minimum_kwh})
            states[policy].append(accounts.by_state)
            notes += accounts.notes
            if number == 0:
                bins = accounts.power(BINS)
                curves.append(PowerCurve(_tuple(bins.edge_s), _tuple(bins.it_w), _tuple(bins.facility_w)))
                signals = signals or _signals(accounts)
    return EnergyResults(
        metrics=tuple(tuple(row) for row in metrics),
        states=tuple(_summed(row) for row in states),
        curves=tuple(curves),
        signals=signals,
        notes=tuple(dict.fromkeys(notes)),
    )


def default_control_sets(context: PowerContext) -> list[str]:
    """No control, each control that cluster and signals support, and all of them; on GPU clusters GPU power caps."""
    if context.cluster.node_level:
        return ["none", *parse_gpu_power_caps(",".join(map(str, DEFAULT_GPU_CAPS)))]
    sets = ["none"]
    if any(group.sleep is not None for group in context.model.groups):
        sets += ["sleep=break-even", "sleep=predictive"]
    if any(len(group.levels) > 1 for group in context.model.groups):
        sets.append(f"dvfs={DEFAULT_SLOWDOWN:g}")
    if context.carbon is not None:
        sets.append(f"shift={DEFAULT_SHIFT}")
    if context.price is not None:
        sets.append(f"shift=price:{DEFAULT_SHIFT}")
    sets.append("all")
    return sets


def accounts_to_dict(accounts: EnergyAccounts, power_controls: str) -> dict[str, Any]:
    """The energy accounts of a run as plain data, for JSON output and the run folder."""
    return {
        "power_controls": power_controls,
        "horizon_s": list(accounts.horizon_s),
        "metrics": accounts.metrics(),
        "kwh_by_state": accounts.by_state,
        "kwh_by_group": {name: dict(states) for name, states in accounts.by_group.items()},
        "currency": accounts.currency or None,
        "signals": dict(accounts.signals),
        "notes": list(accounts.notes),
    }


def _signals(accounts: EnergyAccounts) -> tuple[SignalCurve, ...]:
    """The signals as means over the bins of the power curves."""
    bins = accounts.power(BINS)
    curves = []
    for name, series, mean in (
        ("carbon", accounts.carbon, bins.carbon_g_per_kwh),
        ("price", accounts.price, bins.price_per_mwh),
    ):
        if series is not None and mean is not None:
            curves.append(SignalCurve(name, series.unit, accounts.signals[name], _tuple(bins.edge_s), _tuple(mean)))
    return tuple(curves)


def _summed(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def _tuple(values: Any) -> tuple[float, ...]:
    return tuple(values.tolist())
