"""Power models: presets, files, errors in files."""

from __future__ import annotations

import re

import pytest

from kilowait.cluster.presets import PRESETS
from kilowait.energy.power import ConstantPue, Economiser, PowerModel, description_rows, power_breakdown
from kilowait.energy.power.model import _PRESETS
from kilowait.errors import InputError, UnknownNameError

SITE = """
name = "site"

[[group]]
name = "cpu"
nodes = 10

[[group.component]]
name = "CPU"
kind = "cpu"
count = 2
idle_w = 40
max_w = 200
source = "maker"
estimate = false

[[group.component]]
name = "DDR5"
kind = "memory"
gb = 256
w_per_gb = 0.07
source = "rule"
estimate = true

[[group.loss]]
name = "PSU"
constant_w = 10
efficiency = 0.9
nodes_per_device = 2
source = "maker"
estimate = false

[[group.fixed]]
name = "switch"
watts = 90
nodes_per_unit = 8
through = ["PSU"]
source = "maker"
estimate = false

[group.sleep]
sleep_w = 5
to_sleep_s = 10
to_sleep_w = 100
wake_s = 100
wake_w = 150
source = "measured"
estimate = false

[group.slowdown]
beta = 0.4
cap_a = 0.6
cap_c = 1.5
source = "measured"
estimate = false

[[group.level]]
name = "slow"
speed = 0.5
cpu_dynamic = 0.3
source = "measured"
estimate = false

[facility]
fixed_w = 1000
source = "bill"
estimate = false

[facility.supply]
rated_w = 10000
load_share = [0.1, 1.0]
efficiency = [0.9, 0.95]
source = "maker"
estimate = false

[facility.cooling]
kind = "economiser"
approach_k = 3
source = "design"
estimate = false

[facility.cooling.chiller]
nominal_w = 8000
"""


def model_of(tmp_path, text):
    path = tmp_path / "site.toml"
    path.write_text(text)
    return PowerModel.from_file(path)


@pytest.mark.parametrize("name", PRESETS)
def test_every_cluster_preset_has_a_power_preset_of_the_same_groups(name):
    model = PowerModel.preset(name)
    assert {g.name: g.nodes for g in model.groups} == {g.name: g.nodes for g in PRESETS[name].groups}


@pytest.mark.parametrize("name", PowerModel.presets())
def test_every_preset_is_complete(name):
    model = PowerModel.preset(name.upper())
    assert model.name == name
    assert 0 < model.idle_it_w() < model.full_it_w() < model.facility.facility_w(model.full_it_w(), 20, 15)
    for group in model.groups:
        assert group.levels[0].name == "full"
        assert group.sleep is None or group.sleep.break_even_s(group.idle_w) < 3600
    # Every table of numbers names its source.
    text = (_PRESETS / f"{name}.toml").read_text()
    for table in re.split(r"\n(?=\[)", text)[1:]:
        if not table.startswith("[[group]]"):
            assert "source = " in table, table
            assert "estimate = " in table, table


def test_totals_of_mira_and_theta_equal_published_values():
    assert PowerModel.preset("mira").full_it_w() == pytest.approx(3945e3, rel=1e-3)
    assert PowerModel.preset("theta").full_it_w() == pytest.approx(1087e3, rel=5e-3)


def test_complete_file(tmp_path):
    model = model_of(tmp_path, SITE)
    group = model.group("cpu")
    assert group.node.idle_w == pytest.approx(80 + 17.92)
    assert group.idle_w == pytest.approx((97.92 + 5) / 0.9)
    assert group.fixed_w() == model.fixed_it_w() == pytest.approx(2 * 90 / 0.9)
    assert model.idle_it_w() == pytest.approx(10 * group.idle_w + 200)
    assert (group.beta, group.cap_curve.a, group.cap_curve.c) == (0.4, 0.6, 1.5)
    assert [level.name for level in group.levels] == ["full", "slow"]
    assert group.sleep.wake_s == 100
    assert isinstance(model.facility.cooling, Economiser)
    assert (model.facility.cooling.approach_k, model.facility.cooling.supply_c) == (3, 18)
    assert model.facility.supply.input_w(10_000) == pytest.approx(10_000 / 0.95)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("idle_w = 40\n", "", r"group 'cpu' in .*site.toml, component 'CPU' lacks idle_w"),
        ("nodes = 10\n", "", r"group 'cpu' in .*site.toml lacks nodes"),
        ("sleep_w = 5\n", "", r"group 'cpu' in .*site.toml, sleep lacks sleep_w"),
        ("beta = 0.4\n", "", r"group 'cpu' in .*site.toml, slowdown lacks beta"),
        ("cap_c = 1.5\n", "", r"slowdown lacks cap_c"),
        ("fixed_w = 1000\n", "", r"facility in .*site.toml lacks fixed_w"),
        ("nominal_w = 8000\n", "", r"facility in .*site.toml, cooling, chiller lacks nominal_w"),
        ('source = "maker"\n', "", r"component 'CPU' lacks source"),
        ("estimate = false\n", "", r"component 'CPU' lacks estimate"),
        ("idle_w = 40", "idle_w = -40", r"idle_w of 'CPU' is -40.0; .* \(in .*site.toml\)"),
        ("idle_w = 40", 'idle_w = "40"', "idle_w is '40', which is not of type float"),
        ("idle_w = 40", "idle_w = true", "idle_w is True"),
        ("idle_w = 40", "idle_w = nan", "idle_w is nan"),
        ("count = 2", "count = 2.5", "count is 2.5, which is not of type int"),
        ("efficiency = 0.9\n", "efficiency = 1.9\n", "efficiency of the loss 'PSU' is 1.9"),
        ("sleep_w = 5", "sleep_w = 500", "500.0 W asleep but 114.4 W idle"),
        ('kind = "memory"', 'kind = "cpu"', "w_per_gb is only for components of the kind memory"),
        ("load_share = [0.1, 1.0]", "load_share = 0.1", "write a list"),
        ("[group.slowdown]", "[group.sleep2]", "has levels but no"),
        ("[facility]\n", "[facilities]\n", "no \\[facility\\]|facilit"),
        ("[[group.level]]", "[group.level]", r"must be written as \[\[level\]\]"),
        ("speed = 0.5\ncpu_dynamic = 0.3", "node_w = 9999", "node_w is 9999"),
        ('name = "site"', "name = [", "cannot read the power file"),
    ],
)
def test_errors_in_files(tmp_path, old, new, message):
    assert old in SITE
    with pytest.raises(InputError, match=message):
        model_of(tmp_path, SITE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "suggestion"),
    [
        ("idle_w = 40", "idle_w = 40\nmaxx_w = 3", "max_w"),
        ("wake_s = 100", "wake_s = 100\nwakes_s = 3", "wake_s"),
        ("approach_k = 3", "aproach_k = 3", "approach_k"),
        ('kind = "economiser"', 'kind = "economizer"', "economiser"),
        ('kind = "cpu"', 'kind = "cpus"', "cpu"),
        ('name = "site"', 'name = "site"\nfacilty = 1', "facility"),
        ('through = ["PSU"]', 'through = ["PSUs"]', "psu|PSU"),
        ("cap_a = 0.6\ncap_c = 1.5", 'cap_curve = "V10"', "V100"),
        ("nodes = 10", 'nodes = 10\ncpu_curve = "E5-2620"', "E5-2620v3"),
    ],
)
def test_misspelt_keys_suggest_names(tmp_path, old, new, suggestion):
    with pytest.raises(UnknownNameError, match=suggestion):
        model_of(tmp_path, SITE.replace(old, new, 1))


def test_unknown_file_preset_and_group(tmp_path):
    with pytest.raises(InputError, match="no power file"):
        PowerModel.from_file(tmp_path / "none.toml")
    with pytest.raises(UnknownNameError, match="unknown power preset 'polari'; did you mean 'polaris'"):
        PowerModel.preset("polari")
    with pytest.raises(UnknownNameError, match="group of the power model 'mira'"):
        PowerModel.preset("mira").group("theta")
    with pytest.raises(InputError, match="no \\[\\[group\\]\\]"):
        model_of(tmp_path, 'name = "x"\n')


def test_group_must_be_named_if_there_are_several(tmp_path):
    again = SITE[SITE.index("[[group]]") : SITE.index("[facility]")].replace('name = "cpu"', 'name = "fat"')
    model = model_of(tmp_path, SITE.replace("[facility]", again + "[facility]", 1))
    with pytest.raises(InputError, match=r"several groups \(cpu, fat\); name one"):
        model.group()
    assert model.for_groups({"fat": 3}).idle_it_w() == pytest.approx(3 * model.group("fat").idle_w + 100)
    with pytest.raises(UnknownNameError):
        model.for_groups({"thin": 3})


def test_with_cooling():
    model = PowerModel.preset("theta")
    assert model.with_cooling("pue:1.1").facility.cooling == ConstantPue(1.1)
    plant = model.with_cooling("economiser").facility
    assert plant.cooling.chiller.nominal_w == pytest.approx(1.2 * model.full_it_w())
    assert plant.facility_w(1e6, 10, 8) == pytest.approx(1.03e6)


# -- descriptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PowerModel.presets())
@pytest.mark.parametrize("cooling", [None, "economiser"])
def test_breakdown_parts_add_up(name, cooling):
    model = PowerModel.preset(name)
    if cooling is not None:
        model = model.with_cooling(cooling)
    breakdown = power_breakdown(model, temperature_c=30, wet_bulb_c=17)
    assert (breakdown["weather"] is None) == (cooling is None)
    for state in ("idle", "full"):
        parts = sum(part[f"{state}_w"] for part in breakdown["parts"])
        assert parts == pytest.approx(breakdown[state]["facility_w"], rel=1e-12)
        it_w = sum(part[f"{state}_w"] for part in breakdown["parts"] if part["group"] != "facility")
        assert it_w == pytest.approx(breakdown[state]["it_w"], rel=1e-12)
        assert breakdown[state]["pue"] >= 1


def test_breakdown_of_a_complete_file(tmp_path):
    breakdown = power_breakdown(model_of(tmp_path, SITE), {"cpu": 17}, 25, 20)
    assert breakdown["nodes"] == {"cpu": 17}
    assert sum(part["full_w"] for part in breakdown["parts"]) == pytest.approx(
        breakdown["full"]["facility_w"], rel=1e-12
    )
    names = [part["name"] for part in breakdown["parts"]]
    assert names == ["CPU", "DDR5", "switch", "PSU losses", "supply losses", "fixed overhead", "cooling and the rest"]
    assert [part["estimate"] for part in breakdown["parts"]] == [False, True, False, False, False, False, False]
    assert breakdown["estimates"] == 1
    assert breakdown["levels"]["cpu"][1]["speed"] == 0.5


def test_description_rows():
    rows = description_rows(power_breakdown(PowerModel.preset("polaris")))
    assert rows[1][:5] == ("polaris: A100-SXM4-40", "2,240", "138.9", "896.0", "estimate")
    assert rows[-2][:4] == ("IT total", "", "241.9", "1074.6")
    assert rows[-1][0] == "facility total"
    assert power_breakdown(PowerModel.preset("polaris"))["sleep"]["polaris"]["estimate"] is True
    assert power_breakdown(PowerModel.preset("frontier"))["sleep"]["frontier"] is None
