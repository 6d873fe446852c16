"""Valid commands and small input files, from which `fuzz_command_line` makes its cases."""

from __future__ import annotations

import contextlib
import io
import json
import os
from importlib import resources
from pathlib import Path

from kilowait.cli import main as kilowait_main

__all__ = ["COMMANDS", "READERS", "WAITING", "write_inputs"]

_SMALL = "--windows 2 --window 10 --generations 1 --population 4"
COMMANDS: dict[str, tuple[float, str]] = {
    "quickstart": (0.2, "--fast --out new"),
    "simulate": (10, "lublin:20:8"),
    "compare": (10, "lublin:40:8 --policies fcfs,sjf --workers 1"),
    "report": (3, "run"),
    "energy describe": (5, "power.toml"),
    "energy template": (0, ""),  # has no parameters to change
    "energy controls": (5, "lublin:20:8 --power taurus --workers 1"),
    "train": (2, f"lublin:80:8 --out new {_SMALL}"),
    "tune": (0.5, "lublin:80:8 --out new --trials 1 --total-timesteps 64"),
    "evaluate": (2, "agent lublin:80:8 --windows 2 --window 10"),
    "export": (0.5, "agent --out new.onnx"),
    "pareto": (0.5, "agent lublin:80:8"),
    "predict report": (1, "log.csv --cluster 8 --out new"),
    "predict features": (3, "log.csv --cluster 8 --out new.csv"),
    "predict score": (3, "log.csv --cluster 8 --models last2"),
    "predict fit": (3, "log.csv --cluster 8 --model last2 --out new"),
    "predict apply": (2, "predictor log.csv --cluster 8 --out new.csv"),
    "predict explain": (2, "predictor log.csv 3 --cluster 8"),
    "predict describe": (1, "predictor"),
    "traces describe": (5, "log.csv"),
    "traces convert": (5, "log.csv new.swf"),
    "traces anonymize": (5, "log.csv --out folder/new.csv --key-file key"),
    "traces list": (0.3, ""),
    "traces fetch": (1, "kth-sp2 --cache folder"),
    "telemetry gpu": (1, "--out new.csv --duration 0.2s"),
    "telemetry cpu": (1, "--out new.csv --duration 0.2s --powercap-root folder"),
    "telemetry carbon": (1, "gb --out new.json --timeout 1s --cache folder"),
    "telemetry mock-carbon": (1, "--duration 0.2s"),
    "telemetry label": (6, "samples.csv --job-log log.csv --out new.parquet --log-start 2022-01-01"),
    "synth fit": (2, "log.csv --model bootstrap --out new"),
    "synth sample": (2, "generator --out new.csv --jobs 20"),
    "synth score": (1, "log.csv log.csv --policies fcfs"),
    "synth list": (0.3, ""),
    "policies": (0.3, ""),
    "clusters": (0.3, ""),
    "bench": (0.3, "lublin:20:8 --policies fcfs"),
}
"""Command to its share of the cases and its valid arguments."""

WAITING = ("telemetry gpu", "telemetry cpu", "telemetry carbon", "telemetry mock-carbon")
"""Commands that wait by design."""

_POWERED = "simulate lublin:20:8 --power taurus --log-start 2022-01-01 --repeat-signals"
_CONTROLS = "energy controls lublin:20:8 --power taurus --workers 1 --log-start 2022-01-01 --repeat-signals"
READERS: dict[str, list[str]] = {
    "log.swf": ["simulate log.swf", "traces describe log.swf", "compare log.swf --policies fcfs,sjf --workers 1"],
    "log.csv": ["simulate log.csv --cluster 8 --by user",
                "traces anonymize log.csv --out folder/new.csv --key-file key",
                "predict features log.csv --cluster 8 --out new.csv"],
    "samples.csv": ["telemetry label samples.csv --job-log log.csv --out new.parquet --log-start 2022-01-01"],
    "weather.epw": [f"{_POWERED} --weather weather.epw --cooling chiller"],
    "weather.json": [f"{_POWERED} --weather weather.json --cooling economiser"],
    "price.csv": [f"{_POWERED} --price price.csv", f"{_CONTROLS} --price price.csv"],
    "carbon.csv": [f"{_POWERED} --carbon carbon.csv", f"{_CONTROLS} --carbon carbon.csv"],
    "carbon.json": [f"{_POWERED} --carbon carbon.json"],
    "power.toml": ["energy describe power.toml", "simulate lublin:20:8 --power power.toml"],
    "cluster.toml": ["simulate lublin:20:8 --cluster cluster.toml"],
    "nodes.csv": ["simulate gpu:10:gpu-mixed --cluster nodes.csv --oversized drop"],
    "run/results.json": ["report run"],
    "run/manifest.json": ["report run", "simulate lublin:20:8 --out run --force"],
    "run/scenario.toml": ["report run"],
    "agent/agent.json": ["simulate lublin:20:8 --policy agent:agent",
                         "evaluate agent lublin:80:8 --windows 2 --window 10"],
    "hyperparameters.toml": ["train lublin:80:8 --algo ppo --hyperparameters hyperparameters.toml --out new"],
    "speeds.json": ["simulate gpu:10:gpu-mixed --gpu-speeds speeds.json"],
    "key": ["traces anonymize log.csv --out folder/new.csv --key-file key"],
    "token": ["telemetry carbon electricity-maps --zone DE --token-file token --out new.json --timeout 1s"],
}  # fmt: skip
"""Small input file to commands that read it."""

_HOURS = 8 * 24
"""Length of the series, more than a week."""
_EPW_HEADER = ["LOCATION,Chicago,IL,USA,TMY,725300,41.9,-87.9,-6.0,201.8", *["COMMENTS"] * 7]


def _half_hour(number: int) -> dict[str, object]:
    """One value of the carbon intensity API of Great Britain."""
    begin, end = (
        f"2022-01-{1 + each // 48:02d}T{each // 2 % 24:02d}:{each % 2 * 30:02d}Z" for each in (number, number + 1)
    )
    return {"from": begin, "to": end, "intensity": {"actual": 200 + number}}


def write_inputs() -> None:
    """Write the files and folders that the commands read into the current folder."""
    hours = [f"2022-01-{1 + hour // 24:02d}T{hour % 24:02d}:00Z" for hour in range(_HOURS)]
    rows = [
        f"{i},{60 * i},{30 + i},{100 + i},{1 + i % 4},user {i % 3},q{i % 2},n{1 + i % 2},{i % 7}" for i in range(1, 401)
    ]
    swf = [f"{i} {60 * i} 5 {30 + i} 2 -1 -1 2 {100 + i} -1 1 {i % 3} 1 -1 1 -1 -1 -1" for i in range(1, 41)]
    texts = {
        "log.csv": ["job_id,submit_s,runtime_s,estimate_s,nodes,user,queue,node_list,wait_s", *rows],
        "log.swf": ["; MaxProcs: 8", "; UnixStartTime: 1640995200", *swf],
        "samples.csv": [
            "time,monotonic_s,host,meter,power_w,energy_j,range_j,summed",
            *(f"{1640995200 + 10 * i},{10 * i},n1,node,{100 + i},,,1" for i in range(60)),
        ],
        "weather.epw": [
            *_EPW_HEADER,
            *(
                f"2022,1,{day},{hour},0,?9?9,{hour / 2},5.0,{50 + hour},99832,0,0"
                for day in range(1, 9)
                for hour in range(1, 25)
            ),
        ],
        "weather.json": [
            '{"latitude": 50, "longitude": 8, "utc_offset_seconds": 0, "hourly_units": {"time": "iso8601"}, "hourly": '
            f'{{"time": {[hour[:-1] for hour in hours]}, "temperature_2m": {[hour % 24 for hour in range(_HOURS)]}, '
            f'"relative_humidity_2m": {[50 + hour % 24 for hour in range(_HOURS)]}}}}}'.replace("'", '"')
        ],
        "price.csv": ["time,price (EUR/MWh)", *(f"{hour},{50 + n}.5" for n, hour in enumerate(hours))],
        "carbon.csv": ["time,carbon intensity (gCO2eq/kWh)", *(f"{hour},{200 + n}" for n, hour in enumerate(hours))],
        "carbon.json": [json.dumps({"data": [_half_hour(number) for number in range(2 * _HOURS)]})],
        "cluster.toml": ['name = "tiny"', "[[group]]", 'name = "cpu"', "nodes = 8", "cores = 4"],
        "nodes.csv": ["sn,cpu_milli,memory_mib,gpu,model", *(f"n{i},64000,262144,{i % 3},V100M16" for i in range(6))],
        "hyperparameters.toml": ['algo = "ppo"', 'network = "mlp"', "[settings]", "learning_rate = 0.001"],
        "speeds.json": ['{"v100": {"(\'ResNet-18 (batch size 16)\', 1)": {"null": 20.5}}}'],
        "key": ["0123456789abcdef" * 4],
        "token": ["secret"],
    }
    for name, lines in texts.items():
        Path(name).write_text("\n".join(lines) + "\n")
    preset = resources.files("kilowait.energy.power").joinpath("presets", "taurus.toml")
    Path("power.toml").write_text(preset.read_text(encoding="utf-8"))
    Path("folder").mkdir()
    for name in ("empty", "empty.csv"):
        Path(name).touch()
    Path("random.bin").write_bytes(bytes(range(256)) * 4)
    for raw_name in (b"bad\xff.swf", b"nam\x1b[31me.csv"):
        Path(os.fsdecode(raw_name)).write_bytes(Path("log.csv").read_bytes())
    for words in (
        "simulate lublin:20:8 --power taurus --out run",
        f"train lublin:80:8 --out agent {_SMALL}",
        "predict fit log.csv --cluster 8 --model last2 --out predictor",
        "synth fit log.csv --model bootstrap --out generator",
    ):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            status = kilowait_main(words.split())
        assert status == 0, f"kilowait {words}: {shown.getvalue()}"
