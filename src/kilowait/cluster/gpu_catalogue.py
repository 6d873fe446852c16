"""GPU catalogue: memory, bandwidth, FLOPS and power of GPU types, with sources (data in gpus.toml)."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, UnknownNameError

__all__ = ["GPU_CATALOGUE", "FLOPS_PRECISIONS", "GpuType", "gpu"]

IDLE_SHARE = 0.15
"""Idle power as a share of the TDP, where it is not known."""

FLOPS_PRECISIONS = ("fp64", "fp32", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One GPU type. NaN: unknown; `unsure` names fields that are estimates or unconfirmed.

    >>> gpu("V100").tdp_w, gpu("G2").tdp_w, gpu("rtx 4090").unsure[0]
    (300.0, nan, 'memory_gb')
    """

    name: str
    memory_gb: float
    bandwidth_gb_per_s: float = math.nan
    fp64_tflops: float = math.nan
    fp32_tflops: float = math.nan
    fp16_tflops: float = math.nan
    """With 32-bit accumulation, on tensor cores if present; NaN: no faster half precision."""
    tdp_w: float = math.nan
    idle_w: float = math.nan
    family: str = ""
    """Types of one family share measured speeds; default: the name."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    unsure: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for rule in fields(self):
            value = getattr(self, rule.name)
            if isinstance(value, float) and not (math.isnan(value) or 0 < value < math.inf):
                raise InputError(
                    f"{rule.name} of the GPU type {self.name!r} is {value}; it must be above 0, or NaN if not known"
                )

    def tflops(self, precision: str) -> float:
        """Dense TFLOPS; half precision is at least as fast as single. NaN: unknown.

        >>> gpu("K80").tflops("fp16"), gpu("T4").tflops("fp16")
        (4.113, 65.0)
        """
        if precision not in FLOPS_PRECISIONS:
            raise UnknownNameError("precision", precision, FLOPS_PRECISIONS)
        rate = float(getattr(self, f"{precision}_tflops"))
        return self.fp32_tflops if precision == "fp16" and math.isnan(rate) else rate


def gpu(name: str) -> GpuType:
    """Look up a GPU type by name or alias; case, blanks and dashes are ignored.

    >>> gpu("v100m32").memory_gb, gpu("A100-SXM4-40").name
    (32.0, 'A100-SXM4-40')
    >>> gpu("H20")
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown GPU type 'H20'; did you mean 'h200'? known: 1080ti, ...
    """
    gpu_type = _BY_NAME.get(_plain(name))
    if gpu_type is None:
        raise UnknownNameError("GPU type", name, _NAMES)
    return gpu_type


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _gpu_type(row: dict[str, Any]) -> GpuType:
    values: dict[str, Any] = {"family": row["name"], **row}
    values |= {key: tuple(row.get(key, ())) for key in ("aliases", "unsure")}
    if "tdp_w" in row and "idle_w" not in row:
        values["idle_w"] = round(IDLE_SHARE * row["tdp_w"], 2)
    for key, value in values.items():
        if type(value) is int:
            values[key] = float(value)
    return GpuType(**values)


_ROWS = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))["gpu"]

GPU_CATALOGUE: dict[str, GpuType] = {row["name"]: _gpu_type(row) for row in _ROWS}
"""Name to type."""

# Lower case for case-insensitive suggestions.
_NAMES = [known.lower() for kind in GPU_CATALOGUE.values() for known in (kind.name, *kind.aliases)]
_BY_NAME = {_plain(name): kind for kind in GPU_CATALOGUE.values() for name in (kind.name, *kind.aliases)}
