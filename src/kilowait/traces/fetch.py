"""Download of logs of the Parallel Workloads Archive into a cache, with checksums and resumed downloads.

The archive asks for a citation of its logs: D. Feitelson, D. Tsafrir, D. Krakov, "Experience with using the Parallel
Workloads Archive", JPDC 74(10), 2014; each log's header says whom to acknowledge.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from kilowait.errors import InputError, TraceError, UnknownNameError
from kilowait.files import write_text

ARCHIVE_URL = "https://www.cs.huji.ac.il/labs/parallel/workload/"
TRIES = 3
"""Maximum connections per call; each resumes the download where the last one failed."""
Progress = Callable[[int, int | None], None]

ARCHIVE_LOGS: dict[str, str] = {
    "nasa-ipsc": "l_nasa_ipsc/NASA-iPSC-1993-3.1-cln.swf.gz",
    "lanl-cm5": "l_lanl_cm5/LANL-CM5-1994-4.1-cln.swf.gz",
    "sdsc-par-95": "l_sdsc_par/SDSC-Par-1995-3.1-cln.swf.gz",
    "sdsc-par-96": "l_sdsc_par/SDSC-Par-1996-3.1-cln.swf.gz",
    "ctc-sp2": "l_ctc_sp2/CTC-SP2-1996-3.1-cln.swf.gz",
    "kth-sp2": "l_kth_sp2/KTH-SP2-1996-2.1-cln.swf.gz",
    "sdsc-sp2": "l_sdsc_sp2/SDSC-SP2-1998-4.2-cln.swf.gz",
    "lanl-o2k": "l_lanl_o2k/LANL-O2K-1999-2.swf.gz",
    "osc-cluster": "l_osc_cluster/OSC-Clust-2000-3.1-cln.swf.gz",
    "sdsc-blue": "l_sdsc_blue/SDSC-BLUE-2000-4.2-cln.swf.gz",
    "sandia-ross": "l_sandia_ross/Sandia-Ross-2001-1.1-cln.swf.gz",
    "hpc2n": "l_hpc2n/HPC2N-2002-2.2-cln.swf.gz",
    "das2-fs0": "l_das2/DAS2-fs0-2003-1.swf.gz",
    "das2-fs1": "l_das2/DAS2-fs1-2003-1.swf.gz",
    "das2-fs2": "l_das2/DAS2-fs2-2003-1.swf.gz",
    "das2-fs3": "l_das2/DAS2-fs3-2003-1.swf.gz",
    "das2-fs4": "l_das2/DAS2-fs4-2003-1.swf.gz",
    "sdsc-ds": "l_sdsc_ds/SDSC-DS-2004-2.1-cln.swf.gz",
    "lpc-egee": "l_lpc/LPC-EGEE-2004-1.2-cln.swf.gz",
    "lcg": "l_lcg/LCG-2005-1.swf.gz",
    "sharcnet": "l_sharcnet/SHARCNET-2005-2.swf.gz",
    "llnl-ubgl": "l_llnl_ubgl/LLNL-uBGL-2006-2.swf.gz",
    "llnl-atlas": "l_llnl_atlas/LLNL-Atlas-2006-2.1-cln.swf.gz",
    "llnl-thunder": "l_llnl_thunder/LLNL-Thunder-2007-1.1-cln.swf.gz",
    "ciemat-euler": "l_ciemat_euler/CIEMAT-Euler-2008-1.swf.gz",
    "metacentrum": "l_metacentrum/METACENTRUM-2009-2.swf.gz",
    "metacentrum2": "l_metacentrum2/METACENTRUM-2013-3.swf.gz",
    "anl-intrepid": "l_anl_int/ANL-Intrepid-2009-1.swf.gz",
    "pik-iplex": "l_pik_iplex/PIK-IPLEX-2009-1.swf.gz",
    "ricc": "l_ricc/RICC-2010-2.swf.gz",
    "cea-curie": "l_cea_curie/CEA-Curie-2011-2.1-cln.swf.gz",
    "unilu-gaia": "l_unilu_gaia/UniLu-Gaia-2014-2.swf.gz",
    "kit-fh2": "l_kit_fh2/KIT-FH2-2016-1.swf.gz",
}
"""Log name to its path in the archive."""

CHECKSUMS: dict[str, str] = {
    "ANL-Intrepid-2009-1.swf.gz": "ed6df6cd3cc0bb1a",
    "CEA-Curie-2011-2.1-cln.swf.gz": "2a0fdbd40837590b",
    "HPC2N-2002-2.2-cln.swf.gz": "3c534857d6065cfd",
    "KTH-SP2-1996-2.1-cln.swf.gz": "3e152f201fd2e968",
    "LLNL-Thunder-2007-1.1-cln.swf.gz": "00d9bce501efd3a2",
    "METACENTRUM-2009-2.swf.gz": "7c0b347e77fc7a9a",
    "NASA-iPSC-1993-3.1-cln.swf.gz": "5589ae9b2fb78e3b",
    "SDSC-BLUE-2000-4.2-cln.swf.gz": "9aab21f3cfa108f3",
    "SDSC-SP2-1998-4.2-cln.swf.gz": "e03fe48be50c4ab0",
    "Sandia-Ross-2001-1.1-cln.swf.gz": "08b390c160c41c5d",
}
"""First digits of the sha256 of the archive's own .gz files, from copies with the original gzip headers."""


def default_cache() -> Path:
    """The folder of fetched logs in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("kilowait") / "traces"


def fetch(
    name: str,
    *,
    base_url: str = ARCHIVE_URL,
    cache_dir: str | PathLike[str] | None = None,
    timeout_s: float = 30.0,
    progress: Progress | None = None,
) -> Path:
    """The path of an archived log, downloaded unless it is in the cache.

    `name` is one of `ARCHIVE_LOGS` (case-insensitive) or the archive's file name. An interrupted download is kept and
    resumed. The sha256 is stored next to the file after the download and checked at every later use. `progress` is
    called with the bytes received and the total bytes (None if the server does not say).

    >>> fetch("kth-sp")
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown archived log 'kth-sp'; did you mean 'kth-sp2'? known: ...
    """
    place = _place(name)
    if not base_url.startswith(("http://", "https://")):
        raise InputError(f"base_url is {base_url!r}; it must begin with http:// or https://")
    folder = Path(cache_dir) if cache_dir is not None else default_cache()
    target = folder / place.rpartition("/")[2]
    try:
        if target.exists():
            return _checked(target)
        folder.mkdir(parents=True, exist_ok=True)
        url = f"{base_url.rstrip('/')}/{place}"
        part = _downloaded(url, target, timeout_s, progress)
        digest = _sha256(part)
        with part.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        expected = CHECKSUMS.get(target.name, "")
        if not packed or not digest.startswith(expected):
            part.unlink()
            wrong = f"its sha256 begins {digest[:16]}, not {expected}" if packed else "it is not a gzip file"
            raise TraceError(
                f"the file from {url} is not {target.name}: {wrong}. It was deleted. It is probably a proxy's page or "
                f"a damaged copy: try again, or copy the file to {target} manually"
            )
        write_text(_sidecar(target), f"{digest}  {target.name}\n")
        os.replace(part, target)
    except OSError as problem:
        raise TraceError(f"cannot store {target.name} in {folder}: {problem}; give another cache_dir") from None
    return target


def _place(name: str) -> str:
    for place in ARCHIVE_LOGS.values():
        if name == place.rpartition("/")[2]:
            return place
    try:
        return ARCHIVE_LOGS[name.lower()]
    except KeyError:
        raise UnknownNameError("archived log", name, ARCHIVE_LOGS) from None


def _sidecar(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(target: Path) -> Path:
    """The cached file, after its checksum was verified."""
    digest = _sha256(target)
    side = _sidecar(target)
    expected = side.read_text(encoding="ascii", errors="replace").split(" ")[0] if side.exists() else ""
    expected = expected or CHECKSUMS.get(target.name, "")
    if not digest.startswith(expected):
        raise TraceError(
            f"{target} has changed since it was fetched: its sha256 begins {digest[:16]}, not {expected[:16]}; "
            "delete it and fetch again"
        )
    if not side.exists():
        write_text(side, f"{digest}  {target.name}\n")
    return target


def _downloaded(url: str, target: Path, timeout_s: float, progress: Progress | None) -> Path:
    """Download the complete file under a .part name, resuming from an existing part."""
    import http.client
    import urllib.error

    part = target.with_name(f"{target.name}.part")
    problem: object = "the connection failed each time"
    for _ in range(TRIES):
        received = part.stat().st_size if part.exists() else 0
        try:
            if _stream(url, part, received, timeout_s, progress):
                return part
        except urllib.error.HTTPError as answer:
            if answer.code == 416 and received:  # The local part does not match the remote file: restart.
                part.unlink()
                continue
            problem = f"the server answered {answer.code} {answer.reason}"
            if answer.code < 500:
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as broken:
            problem = getattr(broken, "reason", None) or broken
            if part.exists() and part.stat().st_size > received:
                continue
            if not isinstance(broken, (http.client.HTTPException, ConnectionResetError)):
                break
    received_bytes = part.stat().st_size if part.exists() else 0
    state = (
        f"{received_bytes:,} bytes are kept and the next fetch resumes from there"
        if received_bytes
        else "nothing was changed"
    )
    raise TraceError(
        f"cannot download {url}: {problem}; {state}. Without a network, get the file elsewhere and copy it to {target}"
    )


def _stream(url: str, part: Path, received: int, timeout_s: float, progress: Progress | None) -> bool:
    """Append the server's data to the part; True if the file is complete."""
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "kilowait"})
    if received:
        request.add_header("Range", f"bytes={received}-")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdigit() else None
        span = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range") or "")
        if answer.status == 206 and span is not None and int(span.group(1)) == received:
            total = int(span.group(2))
        else:
            received = 0  # The server sends the whole file.
        with part.open("ab" if received else "wb") as file:
            while block := answer.read(1 << 16):
                file.write(block)
                received += len(block)
                if progress is not None:
                    progress(received, total)
    return total is None or received == total
