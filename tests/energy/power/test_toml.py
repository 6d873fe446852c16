"""The template of a power model file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kilowait.energy.power import PowerModel
from kilowait.energy.power.toml import template
from kilowait.errors import InputError


def test_the_template_is_a_power_model(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(template())
    model = PowerModel.from_file(path)
    group = model.group()
    assert (model.name, group.nodes, group.sleep, len(group.levels)) == ("my cluster", 100, None, 1)
    assert group.idle_w == pytest.approx(2 * 60 + 256 * 0.07 + 50)
    assert group.full_w == pytest.approx(2 * 200 + 256 * 0.07 + 50)


def test_the_commented_parts_of_the_template_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    text, parts = re.subn(r"^#(?=[\[a-z])", "", template(), flags=re.MULTILINE)
    assert parts > 40
    path.write_text(text)
    group = PowerModel.from_file(path).group()
    assert group.sleep is not None and group.sleep.wake_s == 240
    assert [state.name for state in group.levels] == ["full", "80 %"]
    assert len(group.conversion.steps) == len(group.fixed) == 1
    assert {part.kind for part in group.node.components} == {"cpu", "gpu", "memory", "other"}


def test_a_part_without_its_source_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(template().replace('source = "assumed: 0.07 W per GB"\n', ""))
    with pytest.raises(InputError, match="lacks source; give it, with its source"):
        PowerModel.from_file(path)
