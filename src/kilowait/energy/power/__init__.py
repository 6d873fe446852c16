"""Power models: node components, conversion losses, cooling and facility, DVFS states, node sleep and job power."""

from kilowait.energy.power.breakdown import description_rows, power_breakdown
from kilowait.energy.power.components import Component, LoadCurve, NodePower
from kilowait.energy.power.conversion_losses import AffineLoss, Conversion, EfficiencyCurve, FixedLoad
from kilowait.energy.power.cooling import (
    Chiller,
    ConstantPue,
    Cooling,
    Economiser,
    LinearCop,
    SupplyAirCop,
    cooling_model,
)
from kilowait.energy.power.dvfs import (
    GPU_CAP_CURVES,
    CapCurve,
    CapTable,
    DvfsState,
    break_even_beta,
    clock_slowdown,
    fit_cap_curve,
    read_cap_table,
)
from kilowait.energy.power.dvfs_tables import DvfsTable, GpuCaps, best_level, cap_gpus, level_tables
from kilowait.energy.power.model import Facility, GroupPower, PowerModel, SleepStates
from kilowait.energy.power.partial_node_power import energy_by_type
from kilowait.energy.power.utilization import (
    ConstantUtilization,
    MeasuredPowerReport,
    UtilizationByClass,
    UtilizationClass,
    UtilizationProfile,
    job_power_w,
    power_sources,
    utilization,
    with_measured_power,
)

__all__ = [
    "GPU_CAP_CURVES",
    "AffineLoss",
    "UtilizationByClass",
    "CapCurve",
    "CapTable",
    "Chiller",
    "Component",
    "ConstantPue",
    "ConstantUtilization",
    "Conversion",
    "Cooling",
    "Economiser",
    "EfficiencyCurve",
    "Facility",
    "FixedLoad",
    "GpuCaps",
    "GroupPower",
    "DvfsState",
    "DvfsTable",
    "LinearCop",
    "LoadCurve",
    "MeasuredPowerReport",
    "NodePower",
    "PowerModel",
    "UtilizationProfile",
    "SleepStates",
    "SupplyAirCop",
    "UtilizationClass",
    "best_level",
    "break_even_beta",
    "cap_gpus",
    "clock_slowdown",
    "cooling_model",
    "power_breakdown",
    "description_rows",
    "fit_cap_curve",
    "job_power_w",
    "energy_by_type",
    "level_tables",
    "power_sources",
    "read_cap_table",
    "utilization",
    "with_measured_power",
]
