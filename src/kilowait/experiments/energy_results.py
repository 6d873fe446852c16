"""What runs drew, for those who compare and keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.controls.parse import DEFAULT_SHIFT, DEFAULT_SLOWDOWN
from kilowait.evaluation.comparison import (
    EnergyResults,
    PolicyConfig,
    PowerCurve,
    SignalCurve,
    Windows,
)
from kilowait.experiments.gpu_power_cap import CAPS, cap_of, parse_gpu_power_caps
from kilowait.experiments.gpu_settings import speeds_for
from kilowait.experiments.power_context import PowerContext
from kilowait.jobs import ExecutionLog

__all__ = ["accounts_as_data", "energy_record", "lever_sets"]

BINS = 480
"""Of the curves that reports draw."""


def energy_record(
    meter: PowerContext,
    windows: Windows,
    policies: Sequence[PolicyConfig],
    logs: Callable[[int, int], ExecutionLog],
    speeds: str = "auto",
) -> EnergyResults:
    """What every contender drew in every window.

    In each window all are accounted over the same time, from the first counted submission to the last end of any of
    them: who is done sooner goes on idle, or asleep. `least_kwh` is what the work of the window's counted jobs takes
    at best, with nothing idle; on placed nodes at these `speeds`, under the best of the contenders' caps.
    """
    metrics: list[list[dict[str, float]]] = [[] for _ in policies]
    states: list[list[dict[str, float]]] = [[] for _ in policies]
    curves: list[PowerCurve] = []
    signals: tuple[SignalCurve, ...] = ()
    notes: list[str] = []
    caps = {cap_of(contender.power_controls) for contender in policies}
    for number, window in enumerate(windows):
        ran = [logs(contender, number) for contender in range(len(policies))]
        first = float(window.jobs["submit_s"][window.warmup])
        counted = window.jobs[window.warmup :]
        fast = speeds_for(speeds, counted, meter.cluster) if meter.cluster.node_level else None
        least = meter.least_kwh(counted, fast, caps)
        last = max((float(log.end_s.max()) for log in ran if len(log)), default=first)
        for contender, log in enumerate(ran):
            spent = meter.account(log, policies[contender].power_controls, (first, last))
            metrics[contender].append({**spent.metrics(), "least_kwh": least})
            states[contender].append(spent.by_state)
            notes += spent.notes
            if number == 0:
                bins = spent.power(BINS)
                curves.append(PowerCurve(_tuple(bins.edge_s), _tuple(bins.it_w), _tuple(bins.facility_w)))
                signals = signals or _signals(spent)
    return EnergyResults(
        metrics=tuple(tuple(row) for row in metrics),
        states=tuple(_summed(row) for row in states),
        curves=tuple(curves),
        signals=signals,
        notes=tuple(dict.fromkeys(notes)),
    )


def lever_sets(meter: PowerContext) -> list[str]:
    """Always on, each lever alone that this machine and these signals have, and all of them; on placed nodes caps."""
    if meter.cluster.node_level:
        return ["none", *parse_gpu_power_caps(",".join(map(str, CAPS)))]
    sets = ["none"]
    if any(group.sleep is not None for group in meter.model.groups):
        sets += ["sleep=break-even", "sleep=predictive"]
    if any(len(group.levels) > 1 for group in meter.model.groups):
        sets.append(f"dvfs={DEFAULT_SLOWDOWN:g}")
    if meter.carbon is not None:
        sets.append(f"shift={DEFAULT_SHIFT}")
    if meter.price is not None:
        sets.append(f"shift=price:{DEFAULT_SHIFT}")
    sets.append("all")
    return sets


def accounts_as_data(spent: EnergyAccounts, power_controls: str) -> dict[str, Any]:
    """What a run drew, as plain data: for JSON and for the run folder; `levers` in words."""
    return {
        "power_controls": power_controls,
        "horizon_s": list(spent.horizon_s),
        "metrics": spent.metrics(),
        "kwh_by_state": spent.by_state,
        "kwh_by_group": {name: dict(states) for name, states in spent.by_group.items()},
        "currency": spent.currency or None,
        "signals": dict(spent.signals),
        "notes": list(spent.notes),
    }


def _signals(accounts: EnergyAccounts) -> tuple[SignalCurve, ...]:
    """Means over the bins of the curves."""
    bins = accounts.power(BINS)
    found = []
    for name, series, mean in (
        ("carbon", accounts.carbon, bins.carbon_g_per_kwh),
        ("price", accounts.price, bins.price_per_mwh),
    ):
        if series is not None and mean is not None:
            found.append(
                SignalCurve(name, series.unit, accounts.signals[name], _tuple(bins.edge_s), _tuple(mean))
            )
    return tuple(found)


def _summed(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def _tuple(values: Any) -> tuple[float, ...]:
    return tuple(values.tolist())
