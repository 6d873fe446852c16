"""Power breakdown of a power model by component, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kilowait.energy.power.model import GroupPower, PowerModel


def power_breakdown(
    model: PowerModel,
    nodes_by_group: Mapping[str, int] | None = None,
    temperature_c: float = 20.0,
    wet_bulb_c: float = 15.0,
) -> dict[str, Any]:
    """Idle and full power of IT and facility, the PUE, every part, sleep and DVFS states; watts.

    `nodes_by_group` are the cluster's groups (None: the model's own sizes). The weather matters only to cooling models
    that need it. The parts add up to the facility power.

    >>> breakdown = power_breakdown(PowerModel.preset("polaris"))
    >>> round(breakdown["idle"]["it_w"]), round(breakdown["full"]["it_w"]), breakdown["full"]["pue"] > 1
    (241920, 1074640, True)
    """
    if nodes_by_group is not None:
        model = model.for_groups(nodes_by_group)
    weather = {"temperature_c": temperature_c, "wet_bulb_c": wet_bulb_c}
    parts = [part for group in model.groups for part in _parts(group)]
    parts += _facility_parts(model, weather)
    return {
        "name": model.name,
        "nodes": {group.name: group.nodes for group in model.groups},
        "idle": _totals(model, model.idle_it_w(), weather),
        "full": _totals(model, model.full_it_w(), weather),
        "cooling": type(model.facility.cooling).__name__,
        "weather": weather if model.facility.cooling.needs else None,
        "parts": parts,
        "sleep": {group.name: _sleep(group) for group in model.groups},
        "levels": {group.name: _levels(group) for group in model.groups},
        "estimates": sum(bool(part["estimate"]) for part in parts),
    }


def description_rows(description: Mapping[str, Any]) -> list[tuple[str, str, str, str, str, str]]:
    """Rows of a table: part, units, idle kW, full kW, "estimate" or "", source; totals last.

    >>> description_rows(power_breakdown(PowerModel.preset("polaris")))[0][:5]
    ('polaris: EPYC 7543P', '560', '50.4', '126.0', 'estimate')
    """
    rows = [
        (
            f"{part['group']}: {part['name']}",
            f"{part['units']:,}" if part["units"] else "",
            f"{part['idle_w'] / 1e3:.1f}",
            f"{part['full_w'] / 1e3:.1f}",
            "estimate" if part["estimate"] else "",
            str(part["source"]),
        )
        for part in description["parts"]
    ]
    for label, key in (("IT", "it_w"), ("facility", "facility_w")):
        idle, full = description["idle"][key], description["full"][key]
        rows.append((f"{label} total", "", f"{idle / 1e3:.1f}", f"{full / 1e3:.1f}", "", ""))
    return rows


def _totals(model: PowerModel, it_w: float, weather: Mapping[str, float]) -> dict[str, float]:
    facility_w = float(model.facility.facility_w(it_w, **weather))
    return {"it_w": it_w, "facility_w": facility_w, "pue": facility_w / it_w if it_w > 0 else float("nan")}


def _part(group: str, name: str, units: int, watts: Sequence[float], origin: Any) -> dict[str, Any]:
    idle_w, full_w = watts
    return {
        "group": group,
        "name": name,
        "units": units,
        "idle_w": idle_w,
        "full_w": full_w,
        "estimate": origin.estimate,
        "source": origin.source,
    }


def _parts(group: GroupPower) -> list[dict[str, Any]]:
    rows = []
    for part in group.node.components:
        units = group.nodes * part.count
        rows.append(_part(group.name, part.name, units, (units * part.idle_w, units * part.max_w), part))
    rows += [
        _part(group.name, load.name, load.units(group.nodes), [load.units(group.nodes) * load.watts] * 2, load)
        for load in group.fixed
    ]
    idle, full = (group.conversion.losses_w(watts) for watts in (group.node.idle_w, group.node.full_w))
    for step in group.conversion.steps:
        fixed_loss_w = sum(
            group.conversion.fixed_losses_w(load, group.nodes).get(step.name, 0.0) for load in group.fixed
        )
        lost = [group.nodes * losses[step.name] + fixed_loss_w for losses in (idle, full)]
        rows.append(_part(group.name, f"{step.name} losses", 0, lost, step))
    return rows


def _facility_parts(model: PowerModel, weather: Mapping[str, float]) -> list[dict[str, Any]]:
    facility = model.facility
    it = (model.idle_it_w(), model.full_it_w())
    supplied = [float(facility.supplied_w(watts)) for watts in it]
    rows = []
    if facility.supply is not None:
        lost = [more - less for more, less in zip(supplied, it, strict=True)]
        rows.append(_part("facility", "supply losses", 0, lost, facility.supply))
    if facility.fixed_w:
        rows.append(_part("facility", "fixed overhead", 0, [facility.fixed_w] * 2, facility))
    cooled = [float(facility.cooling.power_w(watts, **weather)) for watts in supplied]
    origin = {"estimate": facility.cooling_estimate, "source": facility.cooling_source}
    return [*rows, _part("facility", "cooling and the rest", 0, cooled, facility) | origin]


def _sleep(group: GroupPower) -> dict[str, Any] | None:
    if group.sleep is None:
        return None
    return {
        "sleep_w": group.sleep.sleep_w,
        "idle_w": group.idle_w,
        "transition_s": group.sleep.transition_s,
        "break_even_s": group.sleep.break_even_s(group.idle_w),
        "estimate": group.sleep.estimate,
        "source": group.sleep.source,
    }


def _levels(group: GroupPower) -> list[dict[str, Any]]:
    return [
        {
            "name": level.name,
            "speed": level.speed,
            "cpu_dynamic": level.cpu_dynamic,
            "gpu_cap_w": level.gpu_cap * group.node.limit_of("gpu") if level.gpu_cap < 1 else None,
            "estimate": level.estimate,
            "source": level.source,
        }
        for level in group.levels
    ]
