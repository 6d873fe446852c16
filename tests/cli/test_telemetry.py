"""kilowait telemetry, as an operator calls it; files survive whatever ends it."""

from __future__ import annotations

import os
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
from kilowait.experiments.power import PowerSettings, meter_for
from kilowait.jobs import JobTable
from kilowait.telemetry.labels import SampleFiles
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
    made = ApiServer()
    yield made
    made.server.shutdown()
    made.server.server_close()


# -- sampling --------------------------------------------------------------------------------------


def test_cpu_samples_for_a_while(kilowait, tree, tmp_path):
    out = tmp_path / "n1.csv"
    said = kilowait("telemetry", "cpu", "--root", tree, "--interval", "0.01s", "--duration", "0.05s", "--out", out,
                    "--host", "n1")  # fmt: skip
    assert said.status == 0, said.err
    assert (
        said.out.splitlines()[0]
        == "n1: 5 RAPL counters; the power of the machine is the sum of package-0, dram"
    )
    ticks = int(said.out.splitlines()[1].split(" ")[0])
    assert f"; {5 * ticks} rows written to {out}" in said.out and ticks <= 6
    assert len(out.read_text().splitlines()) == 1 + 5 * ticks
    told = kilowait("telemetry", "cpu", "--root", tree, "--duration", "0", "--out", out, "--json").json()
    assert (told["ticks"], told["rows"], told["missed"], told["clock_changes"]) == (1, 5, 0, 0)
    assert len(out.read_text().splitlines()) == 1 + 5 * ticks + 5


def test_gpu_without_a_driver_is_one_line(kilowait, tmp_path, monkeypatch):
    pytest.importorskip("pynvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    error = kilowait("telemetry", "gpu", "--out", tmp_path / "x.csv", "--host", "n1").error()
    assert "the GPUs of n1 cannot be read: " in error and "nvidia-smi must work there" in error
    assert not (tmp_path / "x.csv").exists()


def test_gpus_are_sampled_through_the_library_that_is_installed(kilowait, tmp_path, monkeypatch):
    """The library stands in for a driver, which no test machine has; how it is loaded and asked is real."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(TestClock(), [300.0, 75.5]))
    out = tmp_path / "n1.csv"
    told = kilowait(
        "telemetry", "gpu", "--duration", "0.02s", "--interval", "0.01s", "--out", out, "--host", "n1"
    )
    assert told.status == 0 and told.out.startswith("n1: 2 x NVIDIA H200\n"), told.err
    first = dict(zip(*(line.split(",") for line in out.read_text().splitlines()[:2]), strict=True))
    assert (first["host"], first["meter"], first["uuid"], first["power_w"]) == ("n1", "gpu0", "GPU-0", "300")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--out", "x.txt"), "unknown suffix of a sample file '.txt'"),
        (("--out", "x.csv", "--interval", "0"), "the interval is 0 s; it must be above 0"),
        (("--out", "x.csv", "--interval", "often"), "'often' is not a span of time"),
        (("--out", "x.csv", "--duration", "-1s"), "the duration is -1 s"),
    ],
)
def test_impossible_settings_are_one_line(kilowait, tree, tmp_path, monkeypatch, words, error):
    monkeypatch.chdir(tmp_path)
    assert error in kilowait("telemetry", "cpu", "--root", tree, *words).error()


def test_no_tree_is_one_line(kilowait, tmp_path):
    error = kilowait("telemetry", "cpu", "--root", tmp_path / "none", "--out", tmp_path / "x.csv").error()
    assert "there is no energy counter" in error


def started(tree: Path, out: Path) -> subprocess.Popen[str]:
    """The command in a process of its own, once it has written some ticks."""
    command = [
        sys.executable,
        "-m",
        "kilowait.cli",
        "telemetry",
        "cpu",
        "--root",
        str(tree),
        "--interval",
        "0.01s",
    ]
    process = subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
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
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["INT", "TERM", "KILL"]
)
def test_whatever_stops_it_what_was_sampled_can_be_read(tmp_path, tree, suffix, number):
    out = tmp_path / f"n1{suffix}"
    process = started(tree, out)
    process.send_signal(number)
    text, error = process.communicate(timeout=60)
    assert error == ""
    if number != signal.SIGKILL:
        assert process.returncode == 0 and f"rows written to {out}" in text
        assert suffix == ".csv" or not list(out.glob("_*"))
    found = SampleFiles([out])
    assert found.rows >= 10 and found.unusable_rows.total() == 0
    assert [meter.meter for meter in found.read_host(found.hosts[0])] == ["intel-rapl:0", "intel-rapl:0:1"]


# -- carbon ----------------------------------------------------------------------------------------


def test_carbon_of_a_span_is_read_by_the_carbon_option(kilowait, web, tmp_path):
    out = tmp_path / "gb.json"
    words = ("telemetry", "carbon", "gb", "--from", "2026-01-01", "--to", "2026-01-15", "--base-url", web.url)
    told = kilowait(*words, "--out", out)
    assert told.status == 0, told.err
    first, last = told.out.splitlines()
    assert first.startswith(
        "carbon intensity, GB, average, direct, 2026-01-01 00:00 UTC to 2026-01-15 00:00 UTC, mean"
    )
    assert last == f"672 values in {out}: 672 new"
    again = kilowait(*words, "--out", out, "--json").json()
    assert (again["added"], again["requests"], again["cached"]) == (0, 0, 2)
    jobs = JobTable(
        job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1], meta={"unix_start_s": 1767225600 + 3600}
    )
    meter = meter_for(PowerSettings("taurus", carbon=str(out)), jobs, Cluster.from_nodes(4))
    assert meter.carbon is not None and meter.carbon.unit == "g/kWh"


def test_carbon_with_a_token_from_the_environment(kilowait, web, tmp_path, monkeypatch):
    out, words = (
        tmp_path / "de.json",
        ("telemetry", "carbon", "electricity-maps", "--zone", "DE", "--base-url", web.url),
    )
    monkeypatch.delenv("ELECTRICITYMAPS_TOKEN", raising=False)
    assert "the environment variable ELECTRICITYMAPS_TOKEN has none" in kilowait(*words, "--out", out).error()
    monkeypatch.setenv("ELECTRICITYMAPS_TOKEN", "s3cret")
    assert "DE, average, life-cycle" in kilowait(*words, "--out", out).out
    (tmp_path / "token").write_text("of-the-file\n")
    assert kilowait(*words, "--out", out, "--latest", "--token-file", tmp_path / "token").status == 0
    assert web.tokens == ["s3cret", "of-the-file"]


def test_carbon_again_and_again(kilowait, web, tmp_path):
    told = kilowait("telemetry", "carbon", "gb", "--every", "0.05s", "--duration", "0.12s", "--base-url", web.url,
                    "--out", tmp_path / "gb.json")  # fmt: skip
    assert told.out == f"Great Britain: written to {tmp_path / 'gb.json'}\n" and len(web.paths) == 3


def test_a_hole_of_the_service_is_a_note(kilowait, web, tmp_path):
    web.gb = lambda words: {
        "data": [
            {"from": time_text(at), "to": time_text(at + 1800), "intensity": {"forecast": 1, "actual": 1}}
            for at in (NOW, NOW + 1800, NOW + 90000)
        ]
    }
    told = kilowait("telemetry", "carbon", "gb", "--base-url", web.url, "--out", tmp_path / "gb.json")
    assert told.status == 0 and told.err.startswith("note: ") and "1 gap(s)" in told.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("gbb",), "unknown carbon service 'gbb'; did you mean 'gb'?"),
        (("gb", "--zone", "DE"), "Great Britain has regions; give --region 1 to 17"),
        (("gb", "--region", "0"), "region is 0; the regions are 1 North Scotland"),
        (("electricity-maps",), "Electricity Maps needs a zone and no region"),
        (("electricity-maps", "--zone", "DE", "--carbon-scope", "all"), "the scope is 'all'"),
        (("gb", "--to", "2026-01-01"), "--to is the end of a time span; give --from with it"),
        (("gb", "--from", "2026-01-01", "--latest"), "a past time span is fetched once"),
        (("gb", "--from", "soon"), "'soon' is not a time"),
        (("gb", "--base-url", "gopher://x"), "the base URL is 'gopher://x'"),
    ],
)
def test_impossible_questions_are_one_line(kilowait, tmp_path, words, error):
    assert error in kilowait("telemetry", "carbon", *words, "--out", tmp_path / "x.json").error()


# -- labels ----------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """sacct's, three jobs: on n1 for 20 s, on n1 and n2 for 10 s, on m1."""

    def at(second: int) -> str:
        return f"{datetime.fromtimestamp(T0 + second, UTC):%Y-%m-%dT%H:%M:%S}"

    rows = [(1, 10, 20, 1, 4, "n1"), (2, 40, 10, 2, 8, "n[1-2]"), (3, 40, 10, 1, 4, "m1")]
    lines = [
        f"{job}|{at(0)}|{at(s)}|{at(s + run)}|{run}|{n}|{cpus}|{where}"
        for job, s, run, n, cpus, where in rows
    ]
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


def test_a_log_gets_its_labels(kilowait, log, samples, tmp_path):
    out = tmp_path / "labelled.parquet"
    told = kilowait("telemetry", "label", samples, "--jobs", log, "--out", out)
    assert told.status == 0, told.err
    assert told.out.splitlines() == [
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
    assert told.err == "note: times of the log taken as UTC (assumed); --zone names another\n"
    jobs = read_trace(out)
    np.testing.assert_allclose(jobs["energy_j"], [2000.0, 1500.0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(jobs["power_w"], [100.0, 150.0, np.nan], rtol=1e-6)
    assert jobs.labels["node_list"] == ("n1", "n[1-2]", "m1")
    assert pq.read_schema(out).names[-2:] == ["energy_j", "power_w"]


def test_labels_are_not_overwritten_without_a_word(kilowait, log, samples, tmp_path):
    out = tmp_path / "labelled.csv"
    words = ("telemetry", "label", samples, "--jobs", log, "--out", out)
    assert kilowait(*words).status == 0
    assert (
        f"{out} exists and is not changed; choose another --out, or add --force" in kilowait(*words).error()
    )
    told = kilowait(*words, "--force", "--json").json()
    assert told["labelled_j"] + told["unlabelled_j"] + told["unattributed_j"] == pytest.approx(
        told["node_j"], rel=1e-9
    )
    assert told["unlabelled"] == {"no samples of its nodes": 1}
    assert read_trace(out)["energy_j"][0] == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--zone", "Europe/Berlin"), "no job ran while its nodes were sampled"),
        (("--zone", "Mars"), "unknown time zone 'Mars'"),
        (("--coverage", "2"), "the coverage is 2; it must be above 0 and at most 1"),
        (("--share", "fairly"), "nodes is 'fairly'; it must be exclusive or shared"),
        (("--idle", "nobody"), "give --share shared and --node-cores"),
    ],
)
def test_impossible_labels_are_one_line(kilowait, log, samples, tmp_path, words, error):
    assert (
        error
        in kilowait(
            "telemetry", "label", samples, "--jobs", log, "--out", tmp_path / "x.parquet", *words
        ).error()
    )


def test_samples_of_the_machine_itself_label_a_log(kilowait, tree, tmp_path):
    """From the counters to the labels: what one verb writes the other reads."""
    out = tmp_path / "here.parquet"
    begin = time.time()
    counter = tree / "intel-rapl:0" / "energy_uj"
    for watt_seconds in (5, 105):
        counter.write_text(str(watt_seconds * 1_000_000))
        kilowait("telemetry", "cpu", "--root", tree, "--duration", "0.0", "--out", out, "--host", "n1")
        time.sleep(0.05)
    table = tmp_path / "jobs.csv"
    row = f"1,{begin - 5},{time.time() - begin + 5},1,0,n1"
    table.write_text(f"job_id,submit_s,runtime_s,nodes,wait_s,node_list\n{row}\n")
    told = kilowait("telemetry", "label", out, "--jobs", table, "--out", tmp_path / "l.parquet", "--coverage", "0.001",
                    "--json").json()  # fmt: skip
    assert told["labelled"] == 1 and told["node_j"] == pytest.approx(100.0, rel=0.02)
    assert os.listdir(out) and all(name.endswith(".parquet") for name in os.listdir(out))
