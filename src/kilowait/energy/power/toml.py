"""Power models in TOML: every number with its source and whether it is an estimate.

The presets beside this file are examples of every table. A missing number, an unknown key or a wrong type is an
error that names the group, the key and the file.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from kilowait.energy.power.components import CURVES, Component, NodePower
from kilowait.energy.power.conversion import (
    AffineLoss,
    Conversion,
    EfficiencyCurve,
    FixedLoad,
)
from kilowait.energy.power.cooling import COOLING, Chiller, Cooling, Economiser
from kilowait.energy.power.dvfs import (
    CAP_CURVES,
    FULL_SPEED,
    CapCurve,
    PowerLevel,
)
from kilowait.energy.power.facility import Facility
from kilowait.energy.power.model import GroupPower, PowerModel
from kilowait.energy.power.sleep import SleepStates
from kilowait.errors import InputError, UnknownNameError

__all__ = ["read_model"]

T = TypeVar("T", int, float, str, bool)


class _Table:
    """A TOML table that knows where it stands and which of its keys were asked for."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise InputError(f"{where} is {values!r}; it must be a table of keys")
        self.values, self.where, self.asked = values, where, set[str]()

    def get(self, key: str, kind: type[T], otherwise: T | None = None) -> T:
        """The value, of this type; an error where it is missing and there is no `otherwise`."""
        self.asked.add(key)
        if key not in self.values:
            if otherwise is None:
                raise InputError(f"{self.where} lacks {key}; give it, with its source")
            return otherwise
        raw: Any = self.values[key]
        if kind is float and type(raw) is int and abs(raw) < 2**1000:
            raw = float(raw)
        endless = isinstance(raw, float) and not math.isfinite(raw)
        if endless or type(raw) is not kind:
            raise InputError(f"{self.where}: {key} is {raw!r}, which is not of type {kind.__name__}")
        checked: T = raw
        return checked

    def listed(self, key: str, kind: type[T]) -> tuple[T, ...]:
        """A list of values of one type."""
        self.asked.add(key)
        values = self.values.get(key, [])
        if not isinstance(values, list):
            raise InputError(f"{self.where}: {key} is {values!r}; write a list")
        return tuple(_Table({key: value}, self.where).get(key, kind) for value in values)

    def tables(self, key: str) -> list[_Table]:
        """The tables [[key]], each knowing its name."""
        self.asked.add(key)
        rows = self.values.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError(f"{self.where}: {key} must be written as [[{key}]] tables")
        return [
            _Table(row, f"{self.where}, {key} {row.get('name', number)!r}") for number, row in enumerate(rows)
        ]

    def table(self, key: str) -> _Table | None:
        """The table [key], None where there is none."""
        self.asked.add(key)
        return _Table(self.values[key], f"{self.where}, {key}") if key in self.values else None

    def said(self) -> dict[str, Any]:
        """Where its numbers come from."""
        return {"source": self.get("source", str), "estimate": self.get("estimate", bool)}

    def done(self) -> None:
        """No key may be left over."""
        for key in self.values:
            if key not in self.asked:
                raise UnknownNameError(f"key of {self.where}", key, self.asked)


def read_model(path: str | PathLike[str]) -> PowerModel:
    """Read the file."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no power file {path}; give a preset's name or a TOML file") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read the power file {path}: {problem}") from None
    try:
        return _model(_Table(content, str(path)), path)
    except InputError as problem:
        if str(path) in str(problem):
            raise
        raise InputError(f"{problem} (in {path})") from None


def _model(top: _Table, path: Path) -> PowerModel:
    name = top.get("name", str, path.stem)
    groups = tuple(_group(table, path) for table in top.tables("group"))
    if not groups:
        raise InputError(f"{path} describes no [[group]] of nodes; give at least one")
    facility = _facility(top.table("facility"), path)
    top.done()
    return PowerModel(name, groups, facility)


def _group(table: _Table, path: Path) -> GroupPower:
    name = table.get("name", str)
    table.where = f"group {name!r} in {path}"
    components = []
    for part in table.tables("component"):
        components.append(_component(part))
        part.done()
    if not components:
        raise InputError(f"{table.where} has no [[group.component]]; give at least one")
    curve_name = table.get("cpu_curve", str, "")
    if curve_name and curve_name not in CURVES:
        raise UnknownNameError(f"cpu_curve of {table.where}", curve_name, CURVES)
    node = NodePower(tuple(components), CURVES.get(curve_name))
    conversion = Conversion(tuple(_loss(step) for step in table.tables("loss")))
    idle_w, full_w = float(conversion.node_w(node.idle_w)), float(conversion.node_w(node.full_w))
    levels = tuple(_level(row, idle_w, full_w) for row in table.tables("level"))
    slowdown = table.table("slowdown")
    if levels and slowdown is None:
        raise InputError(f"{table.where} has levels but no [group.slowdown] with the beta of its jobs")
    beta, cap_curve, said = _slowdown(slowdown) if slowdown is not None else (0.5, None, {})
    group = GroupPower(
        name=name,
        nodes=table.get("nodes", int),
        node=node,
        conversion=conversion,
        fixed=tuple(_fixed(row) for row in table.tables("fixed")),
        sleep=_sleep(table.table("sleep")),
        levels=(FULL_SPEED, *levels),
        beta=beta,
        cap_curve=cap_curve,
        slowdown_source=said.get("source", ""),
        slowdown_estimate=said.get("estimate", True),
    )
    table.done()
    return group


def _component(part: _Table) -> Component:
    if "w_per_gb" in part.values:
        gb, rate, name = part.get("gb", float), part.get("w_per_gb", float), part.get("name", str)
        if part.get("kind", str) != "memory":
            raise InputError(f"{part.where}: w_per_gb is for the kind memory")
        made = Component.memory(gb, rate, **part.said())
        return Component(name, "memory", 1, made.idle_w, made.max_w, made.source, made.estimate)
    return Component(
        part.get("name", str),
        part.get("kind", str),
        part.get("count", int),
        part.get("idle_w", float),
        part.get("max_w", float),
        **part.said(),
    )


def _loss(step: _Table) -> AffineLoss:
    made = AffineLoss(
        step.get("name", str),
        step.get("constant_w", float),
        step.get("efficiency", float),
        step.get("nodes_per_device", int),
        **step.said(),
    )
    step.done()
    return made


def _fixed(row: _Table) -> FixedLoad:
    made = FixedLoad(
        row.get("name", str),
        row.get("watts", float),
        row.get("nodes_per_unit", int),
        row.listed("through", str),
        **row.said(),
    )
    row.done()
    return made


def _level(row: _Table, idle_w: float, full_w: float) -> PowerLevel:
    """A level; `node_w`, the watts of a whole node at full load, may stand for `cpu_dynamic`."""
    if "node_w" in row.values and "cpu_dynamic" not in row.values:
        node_w = row.get("node_w", float)
        if not idle_w <= node_w <= full_w:
            raise InputError(
                f"{row.where}: node_w is {node_w}; it lies between idle {idle_w:g} and full {full_w:g} W"
            )
        cpu_dynamic = (node_w - idle_w) / (full_w - idle_w)
    else:
        cpu_dynamic = row.get("cpu_dynamic", float, 1.0)
    made = PowerLevel(
        row.get("name", str),
        row.get("speed", float, 1.0),
        cpu_dynamic,
        row.get("gpu_cap", float, 1.0),
        **row.said(),
    )
    row.done()
    return made


def _slowdown(table: _Table) -> tuple[float, CapCurve | None, dict[str, Any]]:
    beta, said = table.get("beta", float), table.said()
    curve: CapCurve | None = None
    if "cap_curve" in table.values:
        name = table.get("cap_curve", str)
        if name not in CAP_CURVES:
            raise UnknownNameError(f"cap_curve of {table.where}", name, CAP_CURVES)
        curve = CAP_CURVES[name]
    elif "cap_a" in table.values or "cap_c" in table.values:
        curve = CapCurve("own", table.get("cap_a", float), table.get("cap_c", float), source=said["source"])
    table.done()
    return beta, curve, said


def _sleep(table: _Table | None) -> SleepStates | None:
    if table is None:
        return None
    made = SleepStates(
        sleep_w=table.get("sleep_w", float),
        to_sleep_s=table.get("to_sleep_s", float),
        to_sleep_w=table.get("to_sleep_w", float),
        wake_s=table.get("wake_s", float),
        wake_w=table.get("wake_w", float),
        **table.said(),
    )
    table.done()
    return made


def _facility(table: _Table | None, path: Path) -> Facility:
    if table is None:
        raise InputError(f"{path} has no [facility]; give fixed_w and a [facility.cooling]")
    table.where = f"facility in {path}"
    cooling = table.table("cooling")
    if cooling is None:
        raise InputError(
            f"{table.where} has no [facility.cooling]; the simplest is kind = 'constant-pue' and a pue"
        )
    said = cooling.said()
    chosen = _cooling(cooling, cooling.get("kind", str))
    supply = table.table("supply")
    made = Facility(
        table.get("fixed_w", float),
        chosen,
        _supply(supply) if supply is not None else None,
        **table.said(),
        cooling_source=said["source"],
        cooling_estimate=said["estimate"],
    )
    table.done()
    return made


def _cooling(table: _Table, kind: str) -> Cooling:
    """A cooling model from its own keys; those with a usual value may be left out."""
    if kind not in COOLING:
        raise UnknownNameError(f"kind of {table.where}", kind, COOLING)
    made = COOLING[kind]
    values: dict[str, Any] = {}
    for rule in fields(made):
        if made is Economiser and rule.name == "chiller":
            nested = table.table("chiller")
            if nested is None:
                raise InputError(f"{table.where} lacks the table chiller; give its nominal_w")
            values["chiller"] = _cooling(nested, "chiller")
        elif rule.name in {"pue", "nominal_w"} or rule.name in table.values:
            values[rule.name] = table.get(rule.name, float)
        table.asked.add(rule.name)
    table.done()
    assert made is not Economiser or isinstance(values["chiller"], Chiller)
    return made(**values)


def _supply(table: _Table) -> EfficiencyCurve:
    made = EfficiencyCurve(
        table.listed("load_share", float),
        table.listed("efficiency", float),
        table.get("rated_w", float),
        **table.said(),
    )
    table.done()
    return made
