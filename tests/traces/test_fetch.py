from __future__ import annotations

import gzip
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kilowait.errors import InputError, TraceError, UnknownNameError
from kilowait.traces import ARCHIVE_LOGS, ARCHIVES, fetch, read_trace
from kilowait.traces.fetch import default_cache

LOG = gzip.compress(
    "".join(f"{n} {n} 5 {60 + n * n % 977} 4 -1 -1 4 6000 -1 1 3 2 7 1 -1 -1 -1\n" for n in range(1, 20000)).encode(),
    mtime=0,
)
NAME = "LCG"
FILE = "LCG-2005-1.swf.gz"


class Archive:
    """A loopback archive that can simulate failures."""

    def __init__(self) -> None:
        self.body = LOG
        self.drop_after: list[int] = []
        self.ranges = True
        self.status = 200
        self.send_length = True
        self.requests: list[tuple[str, str | None]] = []
        archive = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                archive.respond(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/workload/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        byte_range = request.headers.get("Range")
        self.requests.append((request.path, byte_range))
        if self.status != 200:
            request.send_error(self.status)
            return
        begin = 0
        match = re.fullmatch(r"bytes=(\d+)-", byte_range or "")
        if match and self.ranges:
            begin = int(match.group(1))
            if begin >= len(self.body):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {begin}-{len(self.body) - 1}/{len(self.body)}")
        else:
            request.send_response(200)
        if self.send_length:
            request.send_header("Content-Length", str(len(self.body) - begin))
        request.end_headers()
        part = self.body[begin:]
        request.wfile.write(part[: self.drop_after.pop(0)] if self.drop_after else part)
        request.close_connection = True


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bypass proxies for the loopback address."""
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def archive() -> Iterator[Archive]:
    server = Archive()
    yield server
    server.server.shutdown()
    server.server.server_close()


def test_second_fetch_uses_the_cache(archive: Archive, tmp_path: Path) -> None:
    progress_calls: list[tuple[int, int | None]] = []
    path = fetch(
        NAME,
        allow_unpinned=True,
        base_url=archive.url,
        cache_dir=tmp_path / "c",
        progress=lambda *at: progress_calls.append(at),
    )
    assert path == tmp_path / "c" / FILE
    assert path.read_bytes() == LOG
    assert progress_calls[-1] == (len(LOG), len(LOG))
    assert archive.requests == [(f"/workload/l_lcg/{FILE}", None)]
    assert fetch(NAME.lower(), allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path / "c") == path
    assert fetch(FILE, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path / "c") == path
    assert len(archive.requests) == 1
    assert len(read_trace(path)) == 19999
    digest = hashlib.sha256(LOG).hexdigest()
    assert (tmp_path / "c" / f"{FILE}.sha256").read_text() == f"{digest}  {FILE}\n"


def test_dropped_connection_is_resumed(archive: Archive, tmp_path: Path) -> None:
    archive.drop_after = [1000, 5000]
    path = fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path)
    assert path.read_bytes() == LOG
    assert [byte_range for _, byte_range in archive.requests] == [None, "bytes=1000-", "bytes=6000-"]


def test_interrupted_download_is_resumed_by_the_next_call(archive: Archive, tmp_path: Path) -> None:
    archive.drop_after = [100, 100, 100]
    with pytest.raises(TraceError, match="300 bytes are kept and the next fetch resumes from there"):
        fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path)
    assert not (tmp_path / FILE).exists()
    assert fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path).read_bytes() == LOG
    assert archive.requests[-1][1] == "bytes=300-"


def test_server_without_range_requests(archive: Archive, tmp_path: Path) -> None:
    archive.ranges, archive.drop_after = False, [1000]
    assert fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path).read_bytes() == LOG


def test_server_without_content_length(archive: Archive, tmp_path: Path) -> None:
    archive.send_length = False
    assert fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path).read_bytes() == LOG


def test_too_long_partial_file_is_restarted(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(LOG + b"too much")
    assert fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path).read_bytes() == LOG


def test_changed_cache_is_an_error(archive: Archive, tmp_path: Path) -> None:
    path = fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path)
    path.write_bytes(LOG[:-1] + b"?")
    with pytest.raises(TraceError, match="has changed since it was fetched.*delete it and fetch again"):
        fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path)


def test_file_with_a_wrong_checksum_is_deleted(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is not KTH-SP2-1996-2.1-cln.swf.gz: its sha256 begins .*, not 3e152f20"):
        fetch("KTH-SP2", base_url=archive.url, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_html_page_is_refused(archive: Archive, tmp_path: Path) -> None:
    archive.body = b"<html>Please log in</html>"
    with pytest.raises(TraceError, match="it is not a gzip file"):
        fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path)


@pytest.mark.parametrize("status", [404, 403, 500])
def test_http_errors_are_reported(archive: Archive, tmp_path: Path, status: int) -> None:
    archive.status = status
    with pytest.raises(TraceError, match=f"the server answered {status} .*nothing was changed.*copy it to .*{FILE}"):
        fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path)
    assert len(archive.requests) == (3 if status == 500 else 1)


def test_offline_error_names_the_remedy(tmp_path: Path) -> None:
    archive = Archive()
    archive.server.shutdown()
    archive.server.server_close()
    with pytest.raises(
        TraceError, match=r"cannot download http://127.*refused.*nothing was changed. Without a network"
    ):
        fetch(NAME, allow_unpinned=True, base_url=archive.url, cache_dir=tmp_path, timeout_s=5)


def test_manually_copied_file_is_used(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(LOG)
    assert fetch(NAME, base_url="http://127.0.0.1:9/", cache_dir=tmp_path) == tmp_path / FILE
    assert (tmp_path / f"{FILE}.sha256").exists()
    (tmp_path / "KTH-SP2-1996-2.1-cln.swf.gz").write_bytes(LOG)
    with pytest.raises(TraceError, match="sha256"):
        fetch("KTH-SP2", base_url="http://127.0.0.1:9/", cache_dir=tmp_path)


def test_names_and_urls_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sdsc-sp2'"):
        fetch("SDSC-SP", cache_dir=tmp_path)
    with pytest.raises(InputError, match="must begin with http"):
        fetch(NAME, base_url="file:///etc/", cache_dir=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="give another cache_dir"):
        fetch(NAME, base_url="http://127.0.0.1:9/", cache_dir=tmp_path / "file", allow_unpinned=True)


def test_logs_without_checksum_are_downloaded_only_if_allowed(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checksum of LCG-2005-1.swf.gz .*--allow-unpinned"):
        fetch(NAME, base_url=archive.url, cache_dir=tmp_path)
    assert not archive.requests and not list(tmp_path.iterdir())
    path = fetch(NAME, base_url=archive.url, cache_dir=tmp_path, allow_unpinned=True)
    assert fetch(NAME, base_url=archive.url, cache_dir=tmp_path) == path


def test_log_of_another_archive(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.body = b"job,submit\n1,2\n"
    log = ARCHIVE_LOGS["openb-default"]
    with pytest.raises(TraceError, match="is not openb_pod_list_default.csv: its sha256 begins .*, not 1ee7ed79"):
        fetch("openb-default", base_url=archive.url, cache_dir=tmp_path)
    monkeypatch.setitem(ARCHIVE_LOGS, "openb-default", replace(log, sha256=hashlib.sha256(archive.body).hexdigest()))
    path = fetch("OpenB-Default", base_url=archive.url, cache_dir=tmp_path)
    assert path == tmp_path / "openb_pod_list_default.csv" and path.read_bytes() == archive.body
    assert archive.requests[-1][0] == f"/workload/{log.path}"
    monkeypatch.setitem(ARCHIVES, "alibaba", replace(ARCHIVES["alibaba"], base_url=archive.url))
    assert fetch("openb-default", cache_dir=tmp_path / "again").read_bytes() == archive.body


def test_catalogue_entries_are_well_formed() -> None:
    assert all(name == name.lower() for name in ARCHIVE_LOGS)
    assert len({log.file for log in ARCHIVE_LOGS.values()}) == len(ARCHIVE_LOGS)
    for log in ARCHIVE_LOGS.values():
        pattern = r"l_\w+/[\w.-]+\.swf\.gz" if log.archive == "pwa" else r"[0-9a-f]{40}/[\w./-]+"
        assert re.fullmatch(pattern, log.path) and (log.sha256 is None or re.fullmatch("[0-9a-f]{64}", log.sha256))
        assert log.archive == "pwa" or log.sha256 is not None
    assert {log.archive for log in ARCHIVE_LOGS.values()} == set(ARCHIVES)
    assert all(re.fullmatch("https://.*/", archive.base_url) for archive in ARCHIVES.values())
    assert default_cache().name == "traces"


LOCAL_COPIES = {
    "openb-nodes": "gpu/alibaba_v2023/openb_node_list_all_node.csv.gz",
    "openb-default": "gpu/alibaba_v2023/openb_pod_list_default.csv.gz",
    "openb-cpu250": "gpu/alibaba_v2023/openb_pod_list_cpu250.csv.gz",
    "openb-gpushare40": "gpu/alibaba_v2023/openb_pod_list_gpushare40.csv.gz",
    "openb-gpuspec33": "gpu/alibaba_v2023/openb_pod_list_gpuspec33.csv.gz",
    "openb-multigpu50": "gpu/alibaba_v2023/openb_pod_list_multigpu50.csv.gz",
    "lumos-thetagpu": "alcf/lumos_thetagpu.csv.gz",
    "lumos-philly": "gpu/philly/lumos_philly_df_schedule.csv.gz",
    "eagle-sample": "slurm/nrel_eagle_sample_1000.csv.gz",
    "lublin-256": "swf/lublin_256.swf.gz",
}
"""Compressed copies of files that the archive has uncompressed."""


def test_checksums_match_the_local_files(data_dir: Path) -> None:
    compared = 0
    for name, log in ARCHIVE_LOGS.items():
        path = data_dir / LOCAL_COPIES.get(name, f"swf/{log.file}")
        if log.sha256 is None or not path.exists():
            continue
        content = gzip.decompress(path.read_bytes()) if name in LOCAL_COPIES else path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == log.sha256, name
        compared += 1
    assert compared
