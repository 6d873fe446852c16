"""File names that are no UTF-8, and single bad bytes in small input files: a result or an error, never a traceback."""

from __future__ import annotations

import os

import pytest

from tests.energy.signals.test_weather import epw, epw_row

POWERED = ("simulate", "lublin:20:8", "--power", "taurus", "--log-start", "2022-01-01", "--repeat-signals")


def unusual(folder, suffix=""):
    return os.fsdecode(os.fsencode(folder) + b"/caf\xe9 \xff" + suffix.encode())


def test_names_that_are_not_utf8(kilowait, csv, tmp_path):
    log = unusual(tmp_path, ".csv")
    os.replace(csv, log)
    columns = ("--columns", "submit_s=submitted,runtime_s=ran,nodes=size")
    result = kilowait("simulate", log, *columns, "--cluster", "8")
    assert result.status == 0, result.err
    assert r"caf\xe9 \xff.csv" in result.out
    result = kilowait("compare", log, log, *columns, "--cluster", "8", "-p", "fcfs,sjf")
    assert result.status == 0, result.err
    assert kilowait("traces", "describe", log, *columns, "--json").status == 0
    for suffix in (".swf", ".csv.gz", "2.parquet"):
        target = unusual(tmp_path, suffix)
        result = kilowait("traces", "convert", log, target, *columns)
        assert result.status == 0, (suffix, result.err)
        assert kilowait("traces", "describe", target).status == 0


def test_results_in_files_whose_names_are_not_utf8_are_refused_early(kilowait, tmp_path):
    out = unusual(tmp_path)
    for args in (
        ("simulate", "lublin:10:4", "--out", out),
        ("simulate", "lublin:10:4", f"--out={out}"),
        ("train", "lublin:10:4", "-o", out),
        ("predict", "features", out, "--out", tmp_path / "f.csv"),
    ):
        assert r"caf\xe9 \xff has bytes that are no UTF-8" in kilowait(*args).error()
    assert not os.path.exists(out)


@pytest.mark.parametrize("option", ["--power", "--cluster", "--weather", "--price", "--carbon", "--gpu-speeds"])
@pytest.mark.parametrize("name", ["\udcff", "\udcff.toml", "pipe", "y" * 300, "null"])
def test_unusual_names_of_missing_files(kilowait, tmp_path, monkeypatch, option, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("/dev/null", "null")
    trace = "gpu:10:gpu-mixed" if option == "--gpu-speeds" else "lublin:20:8"
    powered = ("--power", "taurus") if option in ("--weather", "--price", "--carbon") else ()
    kilowait("simulate", trace, *powered, option, name).error()


def test_epw_with_whole_and_fractional_hours(kilowait, tmp_path):
    path = tmp_path / "w.epw"
    rows = [epw_row(2022, 1, day, f"{hour}.0") for day in range(1, 9) for hour in range(1, 25)]
    path.write_text(epw(rows, "0"))
    result = kilowait(*POWERED, "--weather", path, "--cooling", "chiller")
    assert result.status == 0, result.err
    for hour in ("1.5", "nan", "inf", "1e400", "-1", "0", "25", "9" * 5000, "\x00", "\udcff"):
        path.write_bytes(epw([epw_row(2022, 1, 1, hour), *rows], "0").encode("utf-8", "surrogateescape"))
        assert "w.epw" in kilowait(*POWERED, "--weather", path, "--cooling", "chiller").error()


@pytest.mark.parametrize("bad", [b"\xff", b"\x00", b"\x1b", b"\xe2\x80"])
def test_bad_byte_in_samples(kilowait, tmp_path, bad):
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_s,wait_s,runtime_s,nodes,node_list\n1,0,5,100,1,n1\n2,10,5,100,1,n1\n")
    lines = [b"time,host,meter,power_w", *(b"%d,n1,node,100" % (1640995200 + 10 * i) for i in range(60))]
    samples = tmp_path / "samples.csv"
    for number in range(0, 60, 7):
        for place in (0, 12, len(lines[number])):
            for more in (b"", b",,,,"):
                damaged = lines.copy()
                damaged[number] = damaged[number][:place] + bad + damaged[number][place:] + more
                samples.write_bytes(b"\n".join(damaged) + b"\n")
                result = kilowait(
                    "telemetry", "label", samples, "--job-log", log, "--out", tmp_path / "o.parquet", "--force",
                    "--log-start", "2022-01-01",
                )  # fmt: skip
                assert result.status in (0, 2) and "Traceback" not in result.err


def test_report_of_the_current_folder(kilowait, tmp_path, monkeypatch):
    assert kilowait("simulate", "lublin:20:8", "--out", tmp_path / "run").status == 0
    monkeypatch.chdir(tmp_path / "run")
    result = kilowait("report", ".")
    assert result.status == 0, result.err
    assert (tmp_path / "run.html").is_file()
    monkeypatch.chdir("/")
    assert "run folder" in kilowait("report", ".").error()


def test_a_link_that_points_to_itself_is_an_error_in_one_line(kilowait, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for command in (
        ["report", loop],
        ["traces", "anonymize", "lublin:20:8", "--key-file", tmp_path / "k", "--new-key", "--out", loop],
    ):
        result = kilowait(*command)
        assert result.status == 2 and "Traceback" not in result.err


def test_a_training_needs_the_name_of_a_new_folder(kilowait):
    error = kilowait("train", "lublin:80:8", "--windows", 2, "--window", 10, "--generations", 1, "--out", ".").error()
    assert "is not the name of a new folder" in error


def test_more_workers_than_a_machine_has_are_refused(kilowait):
    assert "4096" in kilowait("compare", "lublin:20:8", "--workers", 10**20).err
