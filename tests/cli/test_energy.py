"""kilowait energy, and energy results of simulate and compare."""

from __future__ import annotations

import pytest

TRACE = "lublin:200:32:0.6:1"


@pytest.fixture
def signals(tmp_path):
    """Options that name a week of carbon intensities and prices."""
    args = ["--log-start", "2022-01-01", "--repeat-signals"]
    for name, header, value in (("carbon", "gCO2/kWh", 200), ("price", "price (EUR/MWh)", 50)):
        path = tmp_path / f"{name}.csv"
        rows = [f"2022-01-{1 + h // 24:02d}T{h % 24:02d}:00Z,{value * (1 + (h % 24 > 6))}" for h in range(24 * 7)]
        path.write_text(f"time,{header}\n" + "\n".join(rows) + "\n")
        args += [f"--{name}", str(path)]
    return args


def test_describe_prints_the_power_of_a_machine(kilowait):
    result = kilowait("energy", "describe", "frontier")
    assert result.status == 0
    assert "IT 7,307 kW" in result.out and "IT 28,228 kW" in result.out
    polaris = kilowait("energy", "describe", "polaris").out
    assert "est." in polaris and "GPUs 350 W" in polaris and "sleep saves energy from 8 min on" in polaris
    taurus = kilowait("energy", "describe", "taurus").out
    (node,) = [line for line in taurus.splitlines() if "whole node" in line]
    assert "est." not in node and "measured" in node
    report = kilowait("energy", "describe", "polaris", "--cluster", "nodes:10", "--json").json()
    assert report["nodes"] == {"nodes": 10}
    assert sum(part["full_w"] for part in report["parts"]) == pytest.approx(report["full"]["facility_w"])
    warm = kilowait("energy", "describe", "polaris", "--cooling", "chiller", "--outdoor-temperature", "35").out
    assert "Chiller at 35 °C" in warm
    assert "did you mean 'polaris'" in kilowait("energy", "describe", "polariss").error()


def test_simulate_reports_energy(kilowait, signals, tmp_path):
    args = ["simulate", TRACE, "--power", "taurus", "--power-controls", "sleep=break-even+dvfs=1.1", *signals]
    result = kilowait(*args)
    assert result.status == 0
    for part in (
        "kWh IT", "kWh facility (PUE 1.3)", "asleep", "EUR", "g/kWh on average", "J s",
        "nodes sleep after 3 min idle", "1 of 2 parts are estimates", "from full load, which is an assumption",
    ):  # fmt: skip
        assert part in result.out, part
    assert "carbon intensity" in result.out and "electricity price" in result.out
    out = tmp_path / "run"
    report = kilowait(*args, "--json", "--out", out).json()["energy"]
    assert report["metrics"]["energy_kwh"] == pytest.approx(sum(report["kwh_by_state"].values()), rel=1e-9)
    assert report["currency"] == "EUR" and report["metrics"]["cost"] > 0
    baseline = kilowait("simulate", TRACE, "--power", "taurus", "--json").json()["energy"]
    assert baseline["metrics"]["energy_kwh"] > report["metrics"]["energy_kwh"]
    assert "co2_kg" not in baseline["metrics"] and baseline["power_controls"] == "no power controls"
    assert '"energy"' in (out / "results.json").read_text()


def test_compare_reports_energy_and_savings(kilowait, signals, tmp_path):
    args = ["compare", TRACE, "--policies", "fcfs,sjf", "--power", "taurus", "--no-clairvoyant", *signals]
    args += ["--power-controls", "none,sleep=break-even,all"]
    result = kilowait(*args, "--out", tmp_path / "c")
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    (header,) = [line for line in lines if line.startswith("energy ")]
    units = [word for word in header.split() if word in ("kWh", "kg", "EUR", "kW", "saved")]
    assert units == ["kWh", "saved", "kWh", "kg", "saved", "EUR", "saved", "kW"]
    assert any("% of the energy of fcfs" in line for line in lines), "the most useful saving is named"
    assert any(line.startswith("sjf, sleep=break-even") and " %" in line for line in lines)
    assert any(line.startswith("policy  backfill  power controls") for line in lines)
    report = kilowait(*args, "--metric", "co2_kg", "--json").json()["traces"][0]
    rows = {row["label"]: row for row in report["rows"]}
    assert rows["fcfs, all"]["saved"]["co2_kg"] > rows["fcfs, sleep=break-even"]["saved"]["energy_kwh"] * 0.5
    assert report["energy"]["kwh_by_state"]["fcfs, all"]["asleep"] > 0
    windows = kilowait(*args, "--metric", "energy_kwh", "--windows", "3", "--window", "60", "--json").json()
    assert windows["traces"][0]["judgement"]["metric"] == "energy_kwh"
    assert (tmp_path / "c" / "energy.json").exists()


def test_each_power_control_is_compared(kilowait, signals):
    result = kilowait("energy", "controls", TRACE, "--power", "taurus", *signals)
    assert result.status == 0
    labels = [line.split("  ")[0] for line in result.out.splitlines()]
    alone = ("sleep=break-even", "sleep=predictive", "dvfs=1.1", "shift=carbon_time:6h", "shift=price:carbon_time:6h")
    expected = ["fcfs", *(f"fcfs, {control}" for control in (*alone, "all")), "lower bound"]
    assert [label for label in labels if label in expected] == expected
    assert "7 of 7: fcfs, all" in result.err
    report = kilowait("energy", "controls", TRACE, "--power", "taurus", "--power-controls", "none,all", "--json").json()
    assert [row["power_controls"] for row in report["rows"]] == ["none", "all"]
    first, last = (row["metrics"] for row in report["rows"])
    assert first["least_kwh"] == last["least_kwh"] < last["energy_kwh"] < first["energy_kwh"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--power-controls", "all"], "need a power model"),
        (["--carbon", "x.csv"], "--carbon needs a power model"),
        (["--power", "auto"], "no power model is known"),
        (["--power", "taurus", "--carbon", "nowhere.csv"], "nowhere.csv"),
        (["--power", "taurus", "--power-controls", "budget=1kW"], "budget of 1,000 W is below the 3,040 W"),
        (["--power", "taurus", "--power-controls", "dvsf=1.1"], "did you mean 'dvfs'"),
        (["--power", "mira", "--power-controls", "dvfs=1.1"], "'mira' has no DVFS states"),
        (["--power", "taurus", "--power-controls", "shift=lowest_window:6h"], "give a file with --carbon"),
        (["--power", "taurus", "--cooling", "chiller"], "give --weather FILE"),
        (["--power", "taurus", "--carbon-scope", "all"], "the carbon scope is 'all'; it must be life-cycle or direct"),
    ],
)
@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_error_messages(kilowait, verb, args, message):
    assert message in kilowait(verb, TRACE, *args).error()


def test_carbon_series_too_short_for_the_run(kilowait, signals):
    signals.remove("--repeat-signals")
    message = kilowait("simulate", "lublin:3000:32:0.6:1", "--power", "taurus", *signals).error()
    assert "missing 2022-01-08 00:00 UTC to" in message and "ask for --repeat-signals" in message


def test_savings_on_the_mira_log(kilowait, data_dir):
    """Mira was so busy that little energy can be saved; the lower bound shows this."""
    report = kilowait(
        "energy", "controls", data_dir / "alcf/lumos_mira.csv.gz", "--cluster", "mira", "--repeat-signals", "--json",
        "--carbon", data_dir / "carbon/US-MIDA-PJM_2022_hourly.csv.gz",
        "--price", data_dir / "price/US-MIDA-PJM_2022.csv.gz",
    ).json()  # fmt: skip
    rows = {row["power_controls"]: row for row in report["rows"]}
    baseline = rows["none"]["metrics"]
    assert (
        0.05
        < rows["sleep=break-even"]["saved"]["energy_kwh"]
        < 1 - baseline["least_kwh"] / baseline["energy_kwh"]
        < 0.1
    )
    assert rows["all"]["saved"]["cost"] > 0.1


def test_template_is_described(kilowait, tmp_path):
    printed = kilowait("energy", "template")
    assert printed.status == 0 and printed.out.startswith("# Template of a power model")
    (tmp_path / "my.toml").write_text(printed.out)
    assert "my cluster" in kilowait("energy", "describe", tmp_path / "my.toml").out
