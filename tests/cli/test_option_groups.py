"""Groups of options: their defaults are those of the settings that they fill."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from kilowait.cli import option_groups as groups
from kilowait.experiments.gpu_options import GpuOptions
from kilowait.experiments.power import PowerSettings
from kilowait.experiments.scenario import Scenario

FILLED: list[tuple[Any, Any]] = [
    (groups.LogFormatOptions, Scenario),
    (groups.LogOptions, Scenario),
    (groups.SchedulingOptions, Scenario),
    (groups.GpuSchedulingOptions, GpuOptions),
    (groups.AgentSignalOptions, PowerSettings),
    (groups.SignalOptions, PowerSettings),
]


@pytest.mark.parametrize(("group", "settings"), FILLED, ids=lambda one: one.__name__)
def test_options_have_the_names_and_defaults_of_the_settings(group: Any, settings: Any) -> None:
    owned = {field.name: field.default for field in fields(settings)}
    for field in fields(group):
        if field.name == "ignore_dependencies":
            assert owned["dependencies"] is not field.default
        else:
            assert owned[field.name] == field.default, field.name
