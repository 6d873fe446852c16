"""Energy on the command line: what a machine draws, what a run cost, what levers save."""

from __future__ import annotations

import pytest

TRACE = "lublin:200:32:0.6:1"


@pytest.fixture
def signals(tmp_path):
    """Options that name a week of carbon intensities and prices."""
    words = ["--log-start", "2022-01-01", "--repeat-signals"]
    for name, header, value in (("carbon", "gCO2/kWh", 200), ("price", "price (EUR/MWh)", 50)):
        path = tmp_path / f"{name}.csv"
        rows = [
            f"2022-01-{1 + h // 24:02d}T{h % 24:02d}:00Z,{value * (1 + (h % 24 > 6))}" for h in range(24 * 7)
        ]
        path.write_text(f"time,{header}\n" + "\n".join(rows) + "\n")
        words += [f"--{name}", str(path)]
    return words


def test_a_machine_is_described(kilowait):
    said = kilowait("energy", "describe", "frontier")
    assert said.status == 0
    assert "IT 7,307 kW" in said.out and "IT 28,228 kW" in said.out
    polaris = kilowait("energy", "describe", "polaris").out
    assert "est." in polaris and "GPUs 350 W" in polaris and "sleep saves energy from 8 min on" in polaris
    taurus = kilowait("energy", "describe", "taurus").out
    (node,) = [line for line in taurus.splitlines() if "whole node" in line]
    assert "est." not in node and "measured" in node
    found = kilowait("energy", "describe", "polaris", "--cluster", "nodes:10", "--json").json()
    assert found["nodes"] == {"nodes": 10}
    assert sum(part["full_w"] for part in found["parts"]) == pytest.approx(found["full"]["facility_w"])
    warm = kilowait("energy", "describe", "polaris", "--cooling", "chiller", "--temperature", "35").out
    assert "Chiller at 35 °C" in warm
    assert "did you mean 'polaris'" in kilowait("energy", "describe", "polariss").error()


def test_a_run_says_what_it_drew(kilowait, signals, tmp_path):
    words = [
        "simulate",
        TRACE,
        "--power",
        "taurus",
        "--power-controls",
        "sleep=break-even+dvfs=1.1",
        *signals,
    ]
    said = kilowait(*words)
    assert said.status == 0
    for part in (
        "kWh IT", "kWh facility (PUE 1.3)", "asleep", "EUR", "g/kWh on average", "J s",
        "nodes sleep after 3 min idle", "1 of 2 parts are estimates", "from full load, which is an assumption",
    ):  # fmt: skip
        assert part in said.out, part
    assert "carbon intensity" in said.out and "electricity price" in said.out
    out = tmp_path / "run"
    found = kilowait(*words, "--json", "--out", out).json()["energy"]
    assert found["metrics"]["energy_kwh"] == pytest.approx(sum(found["kwh_by_state"].values()), rel=1e-9)
    assert found["currency"] == "EUR" and found["metrics"]["cost"] > 0
    kept = kilowait("simulate", TRACE, "--power", "taurus", "--json").json()["energy"]
    assert kept["metrics"]["energy_kwh"] > found["metrics"]["energy_kwh"]
    assert "co2_kg" not in kept["metrics"] and kept["power_controls"] == "no power controls"
    assert '"energy"' in (out / "results.json").read_text()


def test_a_comparison_has_energy_and_savings(kilowait, signals, tmp_path):
    words = ["compare", TRACE, "--policies", "fcfs,sjf", "--power", "taurus", "--no-clairvoyant", *signals]
    words += ["--power-controls", "none,sleep=break-even,all"]
    said = kilowait(*words, "--out", tmp_path / "c")
    assert said.status == 0, said.err
    lines = said.out.splitlines()
    (header,) = [line for line in lines if line.startswith("energy ")]
    assert header.split() == ["energy", "kWh", "saved", "kWh", "kg", "saved", "EUR", "saved", "kW"]
    assert any(line.startswith("sjf, sleep=break-even") and " %" in line for line in lines)
    assert any(line.startswith("policy  backfill  power controls") for line in lines)
    found = kilowait(*words, "--metric", "co2_kg", "--json").json()["traces"][0]
    rows = {row["label"]: row for row in found["rows"]}
    assert rows["fcfs, all"]["saved"]["co2_kg"] > rows["fcfs, sleep=break-even"]["saved"]["energy_kwh"] * 0.5
    assert found["energy"]["kwh_by_state"]["fcfs, all"]["asleep"] > 0
    windows = kilowait(*words, "--metric", "energy_kwh", "--windows", "3", "--window", "60", "--json").json()
    assert windows["traces"][0]["judgement"]["metric"] == "energy_kwh"
    assert (tmp_path / "c" / "energy.json").exists()


def test_levers_one_by_one(kilowait, signals):
    said = kilowait("energy", "controls", TRACE, "--power", "taurus", *signals)
    assert said.status == 0
    labels = [line.split("  ")[0] for line in said.out.splitlines()]
    alone = (
        "sleep=break-even",
        "sleep=predictive",
        "dvfs=1.1",
        "shift=carbon_time:6h",
        "shift=price:carbon_time:6h",
    )
    wanted = ["fcfs", *(f"fcfs, {lever}" for lever in (*alone, "all")), "lower bound"]
    assert [label for label in labels if label in wanted] == wanted
    assert "7 of 7: fcfs, all" in said.err
    found = kilowait(
        "energy", "controls", TRACE, "--power", "taurus", "--power-controls", "none,all", "--json"
    ).json()
    assert [row["power_controls"] for row in found["rows"]] == ["none", "all"]
    first, last = (row["metrics"] for row in found["rows"])
    assert first["least_kwh"] == last["least_kwh"] < last["energy_kwh"] < first["energy_kwh"]


@pytest.mark.parametrize(
    ("words", "said"),
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
        (
            ["--power", "taurus", "--carbon-scope", "all"],
            "the carbon scope is 'all'; it must be life-cycle or direct",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_errors_are_one_line(kilowait, verb, words, said):
    assert said in kilowait(verb, TRACE, *words).error()


def test_a_series_that_is_too_short(kilowait, signals):
    signals.remove("--repeat-signals")
    said = kilowait("simulate", "lublin:3000:32:0.6:1", "--power", "taurus", *signals).error()
    assert "missing 2022-01-08 00:00 UTC to" in said and "ask for --repeat-signals" in said


def test_the_log_of_a_real_machine(kilowait, data_dir):
    """Mira was so busy that little can be saved, and the bound says so."""
    found = kilowait(
        "energy", "controls", data_dir / "alcf/lumos_mira.csv.gz", "--cluster", "mira", "--repeat-signals", "--json",
        "--carbon", data_dir / "carbon/US-MIDA-PJM_2022_hourly.csv.gz",
        "--price", data_dir / "price/US-MIDA-PJM_2022.csv.gz",
    ).json()  # fmt: skip
    rows = {row["power_controls"]: row for row in found["rows"]}
    on = rows["none"]["metrics"]
    assert (
        0.05 < rows["sleep=break-even"]["saved"]["energy_kwh"] < 1 - on["least_kwh"] / on["energy_kwh"] < 0.1
    )
    assert rows["all"]["saved"]["cost"] > 0.1
