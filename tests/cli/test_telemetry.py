"""kilowait telemetry: sampling, carbon intensity, energy labels of jobs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from kilowait.cluster import Cluster
from kilowait.experiments.power import make_power_context
from kilowait.experiments.settings import PowerSettings
from kilowait.jobs import JobTable
from kilowait.telemetry.labels import SampleFiles
from kilowait.telemetry.mock_carbon import daily_curve, serve_mock_carbon
from kilowait.traces import read_trace
from tests.telemetry.api_servers import NOW, ApiServer, time_text
from tests.telemetry.fake_sensors import FakeNvml, TestClock, powercap

T0 = 1_760_000_000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return powercap(tmp_path / "powercap")


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ApiServer]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = ApiServer()
    yield server
    server.server.shutdown()
    server.server.server_close()


# -- sampling --------------------------------------------------------------------------------------


def test_sample_cpu(kilowait, tree, tmp_path):
    out = tmp_path / "n1.csv"
    times = ("--interval", "0.01s", "--duration", "0.05s")
    result = kilowait("telemetry", "cpu", "--powercap-root", tree, *times, "--out", out, "--host", "n1")
    assert result.status == 0, result.err
    assert result.out.splitlines()[0] == "n1: 5 RAPL counters; the power of the machine is the sum of package-0, dram"
    ticks = int(result.out.splitlines()[1].split(" ")[0])
    assert f"; {5 * ticks} rows written to {out}" in result.out and ticks <= 6
    assert len(out.read_text().splitlines()) == 1 + 5 * ticks
    report = kilowait("telemetry", "cpu", "--powercap-root", tree, "--duration", "0", "--out", out, "--json").json()
    assert (report["ticks"], report["rows"], report["missed"], report["clock_changes"]) == (1, 5, 0, 0)
    assert len(out.read_text().splitlines()) == 1 + 5 * ticks + 5


def test_gpu_without_a_driver(kilowait, tmp_path, monkeypatch):
    pytest.importorskip("pynvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    error = kilowait("telemetry", "gpu", "--out", tmp_path / "x.csv", "--host", "n1").error()
    assert "the GPUs of n1 cannot be read: " in error and "nvidia-smi must work there" in error
    assert not (tmp_path / "x.csv").exists()


def test_gpus_are_sampled_with_nvml(kilowait, tmp_path, monkeypatch):
    """NVML is replaced by a fake; loading and calling it is tested."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(TestClock(), [300.0, 75.5]))
    out = tmp_path / "n1.csv"
    result = kilowait("telemetry", "gpu", "--duration", "0.02s", "--interval", "0.01s", "--out", out, "--host", "n1")
    assert result.status == 0 and result.out.startswith("n1: 2 x NVIDIA H200\n"), result.err
    first = dict(zip(*(line.split(",") for line in out.read_text().splitlines()[:2]), strict=True))
    assert (first["host"], first["meter"], first["uuid"], first["power_w"]) == ("n1", "gpu0", "GPU-0", "300")


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--out", "x.txt"), "unknown suffix of a sample file '.txt'"),
        (("--out", "x.csv", "--interval", "0"), "the interval is 0 s; it must be above 0"),
        (("--out", "x.csv", "--interval", "often"), "'often' is not a span of time"),
        (("--out", "x.csv", "--duration", "-1s"), "the duration is -1 s"),
    ],
)
def test_sampling_errors(kilowait, tree, tmp_path, monkeypatch, args, error):
    monkeypatch.chdir(tmp_path)
    assert error in kilowait("telemetry", "cpu", "--powercap-root", tree, *args).error()


def test_missing_rapl_counters(kilowait, tmp_path):
    error = kilowait("telemetry", "cpu", "--powercap-root", tmp_path / "none", "--out", tmp_path / "x.csv").error()
    assert "there is no energy counter" in error


def started(tree: Path, out: Path) -> subprocess.Popen[str]:
    """The command in its own process, after it has written some samples."""
    command = [
        sys.executable,
        "-m",
        "kilowait.cli",
        "telemetry",
        "cpu",
        "--powercap-root",
        str(tree),
        "--interval",
        "0.01s",
    ]
    process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pieces = [out] if out.suffix == ".csv" else list(out.glob("_*.csv"))
        if any(piece.exists() and piece.stat().st_size > 3000 for piece in pieces):
            return process
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    raise AssertionError("nothing was sampled")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["INT", "TERM", "KILL"])
def test_samples_are_readable_after_signals(tmp_path, tree, suffix, number):
    out = tmp_path / f"n1{suffix}"
    process = started(tree, out)
    process.send_signal(number)
    text, error = process.communicate(timeout=60)
    assert error == ""
    if number != signal.SIGKILL:
        assert process.returncode == 0 and f"rows written to {out}" in text
        assert suffix == ".csv" or not list(out.glob("_*"))
    samples_read = SampleFiles([out])
    assert samples_read.rows >= 10 and samples_read.unusable_rows.total() == 0
    assert [meter.meter for meter in samples_read.read_host(samples_read.hosts[0])] == [
        "intel-rapl:0",
        "intel-rapl:0:1",
    ]


# -- carbon ----------------------------------------------------------------------------------------


def test_fetched_carbon_is_read_by_the_carbon_option(kilowait, web, tmp_path):
    out = tmp_path / "gb.json"
    args = ("telemetry", "carbon", "gb", "--since", "2026-01-01", "--until", "2026-01-15", "--base-url", web.url)
    result = kilowait(*args, "--out", out)
    assert result.status == 0, result.err
    first, last = result.out.splitlines()
    assert first.startswith("carbon intensity, GB, average, direct, 2026-01-01 00:00 UTC to 2026-01-15 00:00 UTC, mean")
    assert last == f"672 values in {out}: 672 new"
    again = kilowait(*args, "--out", out, "--json").json()
    assert (again["added"], again["requests"], again["cached"]) == (0, 0, 2)
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1], meta={"unix_start_s": 1767225600 + 3600})
    meter = make_power_context(PowerSettings("taurus", carbon=str(out)), jobs, Cluster.from_nodes(4))
    assert meter.carbon is not None and meter.carbon.unit == "g/kWh"


def test_carbon_tokens(kilowait, web, tmp_path, monkeypatch):
    out, args = (
        tmp_path / "de.json",
        ("telemetry", "carbon", "electricity-maps", "--zone", "DE", "--base-url", web.url),
    )
    monkeypatch.delenv("ELECTRICITYMAPS_TOKEN", raising=False)
    assert "the environment variable ELECTRICITYMAPS_TOKEN has none" in kilowait(*args, "--out", out).error()
    monkeypatch.setenv("ELECTRICITYMAPS_TOKEN", "s3cret")
    assert "DE, average, life-cycle" in kilowait(*args, "--out", out).out
    (tmp_path / "token").write_text("of-the-file\n")
    assert kilowait(*args, "--out", out, "--latest", "--token-file", tmp_path / "token").status == 0
    assert web.tokens == ["s3cret", "of-the-file"]


def test_mock_carbon_serves_a_file_until_its_duration_ends(kilowait, tmp_path):
    result = kilowait("telemetry", "mock-carbon", "--duration", "0.1s")
    assert result.status == 0
    assert re.search(r"mock services at http://127\.0\.0\.1:\d+: gb, electricity-maps, watttime", result.out)
    missing = kilowait("telemetry", "mock-carbon", "--carbon", tmp_path / "no.csv", "--duration", "0.1s")
    assert missing.status == 2 and "no.csv" in missing.err
    assert kilowait("telemetry", "mock-carbon", "--port", 70_000).status == 2


def test_watttime_is_downloaded_from_the_mock(kilowait, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    out, login = tmp_path / "moer.json", tmp_path / "login"
    login.write_text("ann\nsecret\n")
    with serve_mock_carbon(daily_curve, lambda: NOW) as url:
        args = ("telemetry", "carbon", "watttime", "--base-url", url, "--out", out, "--cache", tmp_path / "cache")
        span = ("--since", "2026-01-01", "--until", "2026-01-03")
        result = kilowait(*args, *span, "--zone", "CAISO_NORTH", "--token-file", login, "--json")
        assert result.status == 0 and result.json()["values"] == 576
        assert "WattTime needs a region of the grid" in kilowait(*args, *span, "--token-file", login).err
        monkeypatch.delenv("WATTTIME_USER", raising=False)
        assert "WATTTIME_USER" in kilowait(*args, *span, "--zone", "CAISO_NORTH").err
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path != login)
    assert "secret" not in written


def test_carbon_is_fetched_repeatedly(kilowait, web, tmp_path):
    result = kilowait("telemetry", "carbon", "gb", "--every", "0.05s", "--duration", "0.12s", "--base-url", web.url,
                    "--out", tmp_path / "gb.json")  # fmt: skip
    assert result.out == f"Great Britain: written to {tmp_path / 'gb.json'}\n" and len(web.paths) == 3


def test_gaps_in_the_carbon_series_are_reported(kilowait, web, tmp_path):
    web.gb = lambda args: {
        "data": [
            {"from": time_text(at), "to": time_text(at + 1800), "intensity": {"forecast": 1, "actual": 1}}
            for at in (NOW, NOW + 1800, NOW + 90000)
        ]
    }
    result = kilowait("telemetry", "carbon", "gb", "--base-url", web.url, "--out", tmp_path / "gb.json")
    assert result.status == 0 and result.err.startswith("note: ") and "1 gap(s)" in result.err


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("gbb",), "unknown carbon service 'gbb'; did you mean 'gb'?"),
        (("gb", "--zone", "DE"), "Great Britain has regions; give --region 1 to 17"),
        (("gb", "--region", "0"), "region is 0; the regions are 1 North Scotland"),
        (("electricity-maps",), "Electricity Maps needs a zone and no region"),
        (("electricity-maps", "--zone", "DE", "--carbon-scope", "all"), "the scope is 'all'"),
        (("gb", "--until", "2026-01-01"), "--until is the end of a time span; give --since with it"),
        (("gb", "--since", "2026-01-01", "--latest"), "a past time span is fetched once"),
        (("gb", "--since", "soon"), "'soon' is not a time"),
        (("gb", "--base-url", "gopher://x"), "the base URL is 'gopher://x'"),
    ],
)
def test_carbon_errors(kilowait, tmp_path, args, error):
    assert error in kilowait("telemetry", "carbon", *args, "--out", tmp_path / "x.json").error()


# -- labels ----------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A sacct log of three jobs: on n1 for 20 s, on n1 and n2 for 10 s, on m1."""

    def at(second: int) -> str:
        return f"{datetime.fromtimestamp(T0 + second, UTC):%Y-%m-%dT%H:%M:%S}"

    rows = [(1, 10, 20, 1, 4, "n1"), (2, 40, 10, 2, 8, "n[1-2]"), (3, 40, 10, 1, 4, "m1")]
    lines = [f"{job}|{at(0)}|{at(s)}|{at(s + run)}|{run}|{n}|{cpus}|{where}" for job, s, run, n, cpus, where in rows]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(("JobIDRaw|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|NodeList", *lines)) + "\n")
    return path


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """100 W on n1, 50 W on n2, for a minute."""
    lines = [f"{T0 + s},{host},{watts}" for s in range(61) for host, watts in (("n1", 100), ("n2", 50))]
    path = tmp_path / "meter.csv"
    path.write_text("\n".join(("time,host,power_w", *lines)) + "\n")
    return path


def test_label_a_log(kilowait, log, samples, tmp_path):
    out = tmp_path / "labelled.parquet"
    result = kilowait("telemetry", "label", samples, "--job-log", log, "--out", out)
    assert result.status == 0, result.err
    assert result.out.splitlines() == [
        "jobs           3, 2 of them labelled",
        "not labelled   1: no samples of its nodes",
        "measured       0.0025 kWh",
        "labelled jobs  0.000972 kWh (38.9 %)",
        "other jobs     0 kWh (0.0 %)",
        "no job         0.00153 kWh (61.1 %)",
        "not measured   0 kWh added where samples have gaps",
        "",
        f"written to {out}",
    ]
    assert result.err == "note: times of the log taken as UTC (assumed); --timezone names another\n"
    jobs = read_trace(out)
    np.testing.assert_allclose(jobs["energy_j"], [2000.0, 1500.0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(jobs["power_w"], [100.0, 150.0, np.nan], rtol=1e-6)
    assert jobs.labels["node_list"] == ("n1", "n[1-2]", "m1")
    assert pq.read_schema(out).names[-2:] == ["energy_j", "power_w"]


def test_labels_are_overwritten_only_with_force(kilowait, log, samples, tmp_path):
    out = tmp_path / "labelled.csv"
    args = ("telemetry", "label", samples, "--job-log", log, "--out", out)
    assert kilowait(*args).status == 0
    assert f"{out} exists and is not changed; choose another --out, or add --force" in kilowait(*args).error()
    report = kilowait(*args, "--force", "--json").json()
    assert report["labelled_j"] + report["unlabelled_j"] + report["unattributed_j"] == pytest.approx(
        report["node_j"], rel=1e-9
    )
    assert report["unlabelled"] == {"no samples of its nodes": 1}
    assert read_trace(out)["energy_j"][0] == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--timezone", "Europe/Berlin"), "no job ran while its nodes were sampled"),
        (("--timezone", "Mars"), "unknown time zone 'Mars'"),
        (("--min-coverage", "2"), "the coverage is 2; it must be above 0 and at most 1"),
        (("--node-sharing", "fairly"), "nodes is 'fairly'; it must be exclusive or shared"),
        (("--idle-energy", "nobody"), "give --node-sharing shared and --node-cores"),
    ],
)
def test_label_errors(kilowait, log, samples, tmp_path, args, error):
    assert (
        error
        in kilowait("telemetry", "label", samples, "--job-log", log, "--out", tmp_path / "x.parquet", *args).error()
    )


def test_cpu_samples_label_a_log(kilowait, tree, tmp_path):
    """`telemetry label` reads what `telemetry cpu` writes."""
    out = tmp_path / "here.parquet"
    begin = time.time()
    counter = tree / "intel-rapl:0" / "energy_uj"
    for watt_seconds in (5, 105):
        counter.write_text(str(watt_seconds * 1_000_000))
        kilowait("telemetry", "cpu", "--powercap-root", tree, "--duration", "0.0", "--out", out, "--host", "n1")
        time.sleep(0.05)
    table = tmp_path / "jobs.csv"
    row = f"1,{begin - 5},{time.time() - begin + 5},1,0,n1"
    table.write_text(f"job_id,submit_s,runtime_s,nodes,wait_s,node_list\n{row}\n")
    report = kilowait("telemetry", "label", out, "--job-log", table, "--out", tmp_path / "l.parquet", "--min-coverage",
                      "0.001", "--json").json()  # fmt: skip
    assert report["labelled"] == 1 and report["node_j"] == pytest.approx(100.0, rel=0.02)
    assert os.listdir(out) and all(name.endswith(".parquet") for name in os.listdir(out))
