"""kilowait traces, policies and clusters."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilowait as kw
from kilowait.cluster.presets import PRESETS
from kilowait.evaluation.storage import load_run
from kilowait.policies import POLICIES
from kilowait.policies.round_based import ROUND_BASED_POLICIES
from kilowait.traces import ARCHIVE_LOGS


def test_describe(kilowait, swf):
    result = kilowait("traces", "describe", swf, "lublin:50:16:0.8:1")
    assert result.status == 0
    assert "4 rows read, 3 jobs, 1 dropped" in result.out and "never ran" in result.out
    assert "0.800 of the cluster" in result.out and "synthetic" in result.out


def test_describe_as_json(kilowait, swf):
    description = kilowait("traces", "describe", swf, "--cluster", "nodes:16", "--json").json()
    assert description["jobs"] == 3 and description["machine_size"] == 16
    descriptions = kilowait("traces", "describe", swf, swf, "--json").json()
    assert [row["jobs"] for row in descriptions] == [3, 3]


def test_describe_without_a_machine_size(kilowait, csv):
    columns = "job_id=id,submit_s=submitted,runtime_s=ran,nodes=size"
    result = kilowait("traces", "describe", csv, "--columns", columns)
    assert "as many as the largest job has; the log does not state the size" in result.out


def test_describe_errors(kilowait, swf, tmp_path):
    assert "strict" in kilowait("traces", "describe", swf, "--strict").error()
    assert "no file" in kilowait("traces", "describe", tmp_path / "none").error()
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    assert "binary" in kilowait("traces", "describe", tmp_path / "junk").error()
    (tmp_path / "nothing").write_bytes(b"")
    assert "empty" in kilowait("traces", "describe", tmp_path / "nothing").error()


@pytest.mark.parametrize("name", ["out.swf", "out.swf.gz", "out.csv", "out.parquet"])
def test_convert(kilowait, swf, tmp_path, name):
    result = kilowait("traces", "convert", swf, tmp_path / name)
    assert result.status == 0 and result.out == f"3 jobs written to {tmp_path / name}\n"
    assert "1 dropped" in result.err
    assert kw.read_trace(tmp_path / name)["job_id"].tolist() == [1, 2, 3]


def test_convert_to_batsim_and_scale_the_load(kilowait, tmp_path):
    target = tmp_path / "w"
    assert kilowait("traces", "convert", "lublin:20:8", target, "--to", "batsim", "--cluster", 8).status == 0
    assert '"nb_res": 8' in target.read_text()
    assert kilowait("traces", "convert", "lublin:20:8", tmp_path / "p.xml").status == 0
    target = tmp_path / "busy.swf"
    assert kilowait("traces", "convert", "lublin:20:8", target, "--load", 2, "--jobs", 10).status == 0
    assert kw.offered_load(kw.read_trace(target), 8) == pytest.approx(2)


def test_convert_run_records(kilowait, swf, tmp_path):
    assert kilowait("simulate", swf, "--out", tmp_path / "run").status == 0
    assert kilowait("traces", "convert", tmp_path / "run" / "records.parquet", tmp_path / "out" / "log.csv").status == 0
    converted, records = kw.read_trace(tmp_path / "out" / "log.csv"), load_run(tmp_path / "run").log.jobs()
    assert (converted["submit_s"] + converted["wait_s"]).tolist() == records["start_s"].tolist()
    assert (converted["submit_s"] + converted["wait_s"] + converted["runtime_s"]).tolist() == records["end_s"].tolist()
    assert converted["status"].tolist() == [1, 1, 1] and "account" not in converted


def test_convert_errors(kilowait, swf, tmp_path):
    assert "suffix" in kilowait("traces", "convert", swf, tmp_path / "out.doc").error()
    assert "did you mean" in kilowait("traces", "convert", swf, tmp_path / "x", "--to", "batsm").error()
    assert "cannot write" in kilowait("traces", "convert", swf, swf / "out.swf").error()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[str]:
    """A local HTTP server with one log whose checksum is unknown."""
    content = gzip.compress(b"; MaxProcs: 8\n1 0 0 100 4 -1 -1 4 120 -1 1 1 1 -1 1 -1 -1 -1\n")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetch(kilowait, archive, tmp_path):
    name = next(name for name, log in ARCHIVE_LOGS.items() if log.sha256 is None)
    args = ("traces", "fetch", name, "--cache", tmp_path / "cache", "--base-url", archive)
    assert "is known, so a damaged or changed file would not be noticed" in " ".join(kilowait(*args).error().split())
    result = kilowait(*args, "--allow-unpinned")
    assert result.status == 0, result.err
    assert len(kw.read_trace(result.out.strip())) == 1


def test_fetch_errors(kilowait, tmp_path):
    assert "did you mean 'kth-sp2'?" in kilowait("traces", "fetch", "kth-sp").error()
    message = kilowait("traces", "fetch", "kth-sp2", "--cache", tmp_path, "--base-url", "http://127.0.0.1:9").error()
    assert "cannot download" in message
    assert "http" in kilowait("traces", "fetch", "kth-sp2", "--base-url", "ftp://x", "--cache", tmp_path).error()


def test_traces_policies_and_clusters_are_listed(kilowait):
    assert [row["name"] for row in kilowait("traces", "list", "--json").json()] == list(ARCHIVE_LOGS)
    listed = kilowait("traces", "list").out
    assert "KTH-SP2-1996" in listed and "openb_pod_list_default.csv" in listed and "unknown" in listed
    assert [row["name"] for row in kilowait("policies", "--json").json()] == [*POLICIES, *ROUND_BASED_POLICIES]
    assert "Shortest estimate first." in kilowait("policies").out
    assert [row["name"] for row in kilowait("clusters", "--json").json()] == list(PRESETS)
    assert "49,152" in kilowait("clusters").out


def test_unpack_limit(kilowait, tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"job_id,submit_s,runtime_s,nodes\n" + b"1,0,60,4\n" * 1000))
    for verb in (["traces", "describe"], ["traces", "convert"], ["simulate"], ["bench"]):
        target = [tmp_path / "out.swf"] if "convert" in verb else []
        message = kilowait(*verb, path, *target, "--unpack-limit", "1K").error()
        assert "limit of 1 KiB (1,024 bytes)" in message
        assert "raise the limit with --unpack-limit 2048" in message
    assert kilowait("traces", "describe", path, "--unpack-limit", "1G").status == 0
    assert "is not a size" in kilowait("traces", "describe", path, "--unpack-limit", "much").error()


def test_format_and_its_reason_are_stated(kilowait, swf, tmp_path):
    converted = kilowait("traces", "convert", swf, tmp_path / "t.csv")
    assert f"{swf} is read as swf: " in converted.err
    described = kilowait("traces", "describe", tmp_path / "t.csv")
    assert "csv: its header has kilowait's" in described.out
    assert "csv: its header has kilowait's columns job_id, submit_s" in described.out
    assert "swf: it was given" in kilowait("traces", "describe", swf, "--format", "swf").out
