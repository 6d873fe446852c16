"""Reader of power models in TOML, where every value has a source and an estimate flag.

The presets are examples of every table. A missing value, an unknown key or a wrong type is an error that names the
group, the key and the file.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from kilowait.energy.power.components import (
    LOAD_CURVES,
    AffineLoss,
    Component,
    Conversion,
    EfficiencyCurve,
    FixedLoad,
    NodePower,
)
from kilowait.energy.power.cooling import COOLING_MODELS, Chiller, Cooling, Economiser
from kilowait.energy.power.dvfs import GPU_CAP_CURVES
from kilowait.energy.power.model import FULL_SPEED, CapCurve, DvfsState, Facility, GroupPower, PowerModel, SleepStates
from kilowait.errors import InputError, UnknownNameError

T = TypeVar("T", int, float, str, bool)
R = TypeVar("R", AffineLoss, Component, DvfsState, EfficiencyCurve, FixedLoad, SleepStates)

_TYPES: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool}
_LISTS: dict[str, Any] = {"tuple[str, ...]": str, "tuple[float, ...]": float}
"""Types of fields, by their annotation."""


class _Table:
    """A TOML table with its location in the file and the keys that were read."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise InputError(f"{where} is {values!r}; it must be a table of keys")
        self.values, self.where, self.read_keys = values, where, set[str]()

    def get(self, key: str, kind: type[T], otherwise: T | None = None) -> T:
        """The value, checked for its type; an error if it is missing and there is no `otherwise`."""
        self.read_keys.add(key)
        if key not in self.values:
            if otherwise is None:
                raise InputError(f"{self.where} lacks {key}; give it, with its source")
            return otherwise
        raw: Any = self.values[key]
        if kind is float and type(raw) is int and abs(raw) < 2**1000:
            raw = float(raw)
        infinite = isinstance(raw, float) and not math.isfinite(raw)
        if infinite or type(raw) is not kind:
            raise InputError(f"{self.where}: {key} is {raw!r}, which is not of type {kind.__name__}")
        checked: T = raw
        return checked

    def list_of(self, key: str, kind: type[T]) -> tuple[T, ...]:
        """A list of values of one type."""
        self.read_keys.add(key)
        values = self.values.get(key, [])
        if not isinstance(values, list):
            raise InputError(f"{self.where}: {key} is {values!r}; write a list")
        return tuple(_Table({key: value}, self.where).get(key, kind) for value in values)

    def tables(self, key: str) -> list[_Table]:
        """The tables [[key]], each with its name in its location."""
        self.read_keys.add(key)
        rows = self.values.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError(f"{self.where}: {key} must be written as [[{key}]] tables")
        return [_Table(row, f"{self.where}, {key} {row.get('name', number)!r}") for number, row in enumerate(rows)]

    def table(self, key: str) -> _Table | None:
        """The table [key]; None if there is none."""
        self.read_keys.add(key)
        return _Table(self.values[key], f"{self.where}, {key}") if key in self.values else None

    def origin(self) -> dict[str, Any]:
        """Source and estimate flag of its values."""
        return {"source": self.get("source", str), "estimate": self.get("estimate", bool)}

    def record(self, kind: type[R], optional: Mapping[str, Any] | None = None, **given: Any) -> R:
        """An object whose fields are the keys of this table, with their types; `optional` are keys with a default."""
        values: dict[str, Any] = {}
        for field in fields(kind):
            if field.name in given:
                values[field.name] = given[field.name]
            elif str(field.type) in _LISTS:
                values[field.name] = self.list_of(field.name, _LISTS[str(field.type)])
            else:
                default = (optional or {}).get(field.name)
                values[field.name] = self.get(field.name, _TYPES[str(field.type)], default)
        result = kind(**values)
        self.check_unknown_keys()
        return result

    def check_unknown_keys(self) -> None:
        """Raise if the table has a key that was not read."""
        for key in self.values:
            if key not in self.read_keys:
                raise UnknownNameError(f"key of {self.where}", key, self.read_keys)


def read_model(path: str | PathLike[str]) -> PowerModel:
    """Read a power model from a TOML file."""
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


def template() -> str:
    """The text of a power model with every table of the format and comments, to be filled in; see template.toml.

    >>> print(template().splitlines()[0])
    # Template of a power model for kilowait. Replace the numbers by those of your cluster, then check the file with
    """
    return Path(__file__).with_name("template.toml").read_text(encoding="utf-8")


def _model(top: _Table, path: Path) -> PowerModel:
    name = top.get("name", str, path.stem)
    groups = tuple(_group(table, path) for table in top.tables("group"))
    if not groups:
        raise InputError(f"{path} describes no [[group]] of nodes; give at least one")
    facility = _facility(top.table("facility"), path)
    top.check_unknown_keys()
    return PowerModel(name, groups, facility)


def _group(table: _Table, path: Path) -> GroupPower:
    name = table.get("name", str)
    table.where = f"group {name!r} in {path}"
    components = tuple(map(_component, table.tables("component")))
    if not components:
        raise InputError(f"{table.where} has no [[group.component]]; give at least one")
    curve_name = table.get("cpu_curve", str, "")
    if curve_name and curve_name not in LOAD_CURVES:
        raise UnknownNameError(f"cpu_curve of {table.where}", curve_name, LOAD_CURVES)
    node = NodePower(components, LOAD_CURVES.get(curve_name))
    conversion = Conversion(tuple(step.record(AffineLoss) for step in table.tables("loss")))
    idle_w, full_w = float(conversion.node_w(node.idle_w)), float(conversion.node_w(node.full_w))
    levels = tuple(_level(row, idle_w, full_w) for row in table.tables("level"))
    slowdown = table.table("slowdown")
    if levels and slowdown is None:
        raise InputError(f"{table.where} has levels but no [group.slowdown] with the beta of its jobs")
    beta, cap_curve, origin = _slowdown(slowdown) if slowdown is not None else (0.5, None, {})
    sleep = table.table("sleep")
    group = GroupPower(
        name=name,
        nodes=table.get("nodes", int),
        node=node,
        conversion=conversion,
        fixed=tuple(row.record(FixedLoad) for row in table.tables("fixed")),
        sleep=sleep.record(SleepStates) if sleep is not None else None,
        levels=(FULL_SPEED, *levels),
        beta=beta,
        cap_curve=cap_curve,
        slowdown_source=origin.get("source", ""),
        slowdown_estimate=origin.get("estimate", True),
    )
    table.check_unknown_keys()
    return group


def _component(part: _Table) -> Component:
    if "w_per_gb" not in part.values:
        return part.record(Component)
    gb, rate, name = part.get("gb", float), part.get("w_per_gb", float), part.get("name", str)
    if part.get("kind", str) != "memory":
        raise InputError(f"{part.where}: w_per_gb is only for components of the kind memory")
    memory = Component.memory(gb, rate, **part.origin())
    part.check_unknown_keys()
    return replace(memory, name=name)


def _level(row: _Table, idle_w: float, full_w: float) -> DvfsState:
    """A DVFS state; `node_w`, the power of a whole node at full load, may replace `cpu_dynamic`."""
    if "node_w" in row.values and "cpu_dynamic" not in row.values:
        node_w = row.get("node_w", float)
        if not idle_w <= node_w <= full_w:
            raise InputError(
                f"{row.where}: node_w is {node_w}; it must be from {idle_w:g} W (idle) to {full_w:g} W (full load)"
            )
        cpu_dynamic = (node_w - idle_w) / (full_w - idle_w)
    else:
        cpu_dynamic = row.get("cpu_dynamic", float, 1.0)
    return row.record(DvfsState, {"speed": 1.0, "gpu_cap": 1.0}, cpu_dynamic=cpu_dynamic)


def _slowdown(table: _Table) -> tuple[float, CapCurve | None, dict[str, Any]]:
    beta, origin = table.get("beta", float), table.origin()
    curve: CapCurve | None = None
    if "cap_curve" in table.values:
        name = table.get("cap_curve", str)
        if name not in GPU_CAP_CURVES:
            raise UnknownNameError(f"cap_curve of {table.where}", name, GPU_CAP_CURVES)
        curve = GPU_CAP_CURVES[name]
    elif "cap_a" in table.values or "cap_c" in table.values:
        curve = CapCurve("own", table.get("cap_a", float), table.get("cap_c", float), source=origin["source"])
    table.check_unknown_keys()
    return beta, curve, origin


def _facility(table: _Table | None, path: Path) -> Facility:
    if table is None:
        raise InputError(f"{path} has no [facility]; give fixed_w and a [facility.cooling]")
    table.where = f"facility in {path}"
    cooling = table.table("cooling")
    if cooling is None:
        raise InputError(f"{table.where} has no [facility.cooling]; the simplest is kind = 'constant-pue' with a pue")
    origin = cooling.origin()
    chosen = _cooling(cooling, cooling.get("kind", str))
    supply = table.table("supply")
    result = Facility(
        table.get("fixed_w", float),
        chosen,
        supply.record(EfficiencyCurve) if supply is not None else None,
        **table.origin(),
        cooling_source=origin["source"],
        cooling_estimate=origin["estimate"],
    )
    table.check_unknown_keys()
    return result


def _cooling(table: _Table, kind: str) -> Cooling:
    """A cooling model from its keys; keys with a default may be left out."""
    if kind not in COOLING_MODELS:
        raise UnknownNameError(f"kind of {table.where}", kind, COOLING_MODELS)
    model = COOLING_MODELS[kind]
    values: dict[str, Any] = {}
    for field in fields(model):
        if model is Economiser and field.name == "chiller":
            nested = table.table("chiller")
            if nested is None:
                raise InputError(f"{table.where} lacks the table chiller; give its nominal_w")
            values["chiller"] = _cooling(nested, "chiller")
        elif field.name in {"pue", "nominal_w"} or field.name in table.values:
            values[field.name] = table.get(field.name, float)
        table.read_keys.add(field.name)
    table.check_unknown_keys()
    assert model is not Economiser or isinstance(values["chiller"], Chiller)
    return model(**values)
