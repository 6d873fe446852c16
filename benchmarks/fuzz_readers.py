"""Mutated logs through every reader: only KilowaitError may come out, and every row must be accounted for.

    python -m benchmarks.fuzz_readers --lines 1000000 --seed 0

The samples are made here; where KILOWAIT_DATA names the folder of real traces, heads of those are mutated too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.fuzz_gpu import gpu_samples
from kilowait.errors import KilowaitError
from kilowait.jobs import JobTable
from kilowait.traces import read_trace_with_report, write_trace

_TOKENS = (
    "nan inf -inf 1e400 -5 -1 0 99999999999999999999 1e15 -1e300 0x10 1_000 --1 - . 1.2.3 5. .5 1-2 {1,2} | , ; \" ' # "
    "Unknown None UNLIMITED Partition_Limit 2021-13-45T99:99:99 9999-12-31T23:59:59 0001-01-01T00:00:00+23:59 "
    "2021-02-03T04:05:06Z 99999999-00:00:00 7:7:7:7 123_[4-9] 123.batch 12+1 CANCELLED é \x00 \x1f \u2028 \u0663 "
    "4294967295 9223372036854775808 170141183460469231731687303715884105728 1e-320 00 -0 1,024 ٣"
)
NASTY = [*_TOKENS.split(" "), "", " ", "\t", "\r", "\r\n", '"a', "x" * 300, "9" * 400, "9" * 5000 + "-1"]
"""What a field is replaced with."""


def samples() -> dict[str, bytes]:
    """A small log of every form."""
    rng = np.random.default_rng(7)
    rows = [
        (i + 1, 60 * i, int(rng.integers(0, 900)), int(rng.integers(0, 5000)), int(rng.integers(1, 64)))
        for i in range(40)
    ]
    swf = [
        "; Version: 2.2",
        "; MaxProcs: 64 (16 x 4)",
        "; UnixStartTime: 1000000000",
        "; Queue: 1 batch",
        ";",
    ]
    extended, wide, events, djc, lumos, nrel, sacct, other = [], [], [], [], [], [], [], []
    own = ["job_id,submit_s,runtime_s,estimate_s,nodes,user,queue,status,wait_s,after_id,think_s"]
    djc.append(
        "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,START_TIMESTAMP,END_TIMESTAMP,USERNAME_GENID,"
        "PROJECT_NAME_GENID,QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,NODES_USED,NODES_REQUESTED,CORES_USED,EXIT_STATUS"
    )
    lumos.append(
        ",job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,new_status"
    )
    nrel.append(
        "job_id;user;account;partition;qos;wallclock_req;nodes_req;processors_req;gpus_req;submit_time;start_time;"
        "end_time;run_time;state;name"
    )
    sacct.append(
        "JobID|JobIDRaw|User|Account|Partition|QOS|JobName|Submit|Start|End|Elapsed|Timelimit|AllocNodes|AllocCPUS|"
        "ReqMem|AllocTRES|State|ExitCode|SubmitLine|WorkDir"
    )
    other.append(
        "ConsumedEnergyRaw|CPUTimeRAW|ReqCPUS|ReqMem|ReqNodes|ResvCPURAW|Submit|TimelimitRaw|Partition|State"
    )
    for job, submit, wait, run, procs in rows:
        limit = run + 600
        tail = f"{job % 5} 1 {job % 7} {job % 2} -1 {job - 3 if job % 9 == 0 else -1} -1"
        line = f"{job} {submit} {wait} {run} {procs} -1 -1 {procs} {limit} 2048 1 {tail}"
        swf.append(line)
        extended.append(f"{line} 0.73")
        wide.append(f"{line} {{{','.join(['12'] * 3)}}} q_{job % 3} 1:ppn={procs}")
        events.append(
            f"-dt {submit}.50 -e submit_batch_job | -sim-walltime {run}.00 --uid=user{job % 4} -J jobid_{job:05d} "
            f"-N {procs} -n {procs * 2} -t 1-00:00:00 -q normal -p batch --mem=4G --gres=gpu:2 pseudo.job"
        )
        clock = [
            f"2019-01-{1 + s // 86400:02d}{{}}{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}"
            for s in (submit, submit + wait, submit + wait + run)
        ]
        a, b, c = (text.format(" ") for text in clock)
        ta, tb, tc = (text.format("T") for text in clock)
        djc.append(
            f'"{job}.theta",{job},theta,"{a}.000000","{b}.000000","{c}.000000",{job % 4}12345678901,7,default,{limit},'
            f"{run}.0,{procs},{procs},{procs * 64},0"
        )
        lumos.append(
            f"{job - 1},{job},{job % 3}.0,0.0,0,0,{procs * 16}.0,{procs}.0,{submit}.0,{wait},{run}.5,{limit}.0,Pass"
        )
        nrel.append(
            f"{job};u{job % 4};acc;batch;normal;{limit}.0;{procs};{procs};0;{a};{b};{c};{run}.0;COMPLETED;n{job}"
        )
        name = "a|b" if job % 6 == 0 else f"name {job}"
        told = "sbatch --wrap=\nx | y" if job % 8 == 0 else "sbatch x.sh"
        state = "CANCELLED by 1000" if job % 5 == 0 else "COMPLETED"
        key = f"{job}_{job % 3}" if job % 7 == 0 else str(job)
        sacct.append(
            f"{key}|{job}|u{job % 4}|acc|batch|normal|{name}|{ta}|{tb}|{tc}|0-01:00:00|2-12:30:00|{procs}|{procs * 4}|"
            f"4Gn|billing=1,cpu={procs * 4},mem=4G,node={procs},gres/gpu=2|{state}|0:0|{told}|/home/u"
        )
        if job % 3 == 0:
            sacct.append(
                f"{key}.batch|{job}.batch||acc|||batch|{tb}|{tb}|{tc}|0-01:00:00||1|4||cpu=4|COMPLETED|0:0||"
            )
        other.append(f"{run * 10}|{run * 4}|4|100Mc|1|{wait}|{ta}|{limit // 60}|batch|{state}")
        own.append(f'{job},{submit}.5,{run},{limit},{procs},"u, {job % 4}",batch,1,{wait},,')
    made = {
        "swf": swf,
        "swf19": extended,
        "swf21": wide,
        "events": events,
        "djc": djc,
        "lumos": lumos,
        "nrel": nrel,
    }
    made |= {"sacct": sacct, "sacct_bare": other, "own_csv": own}
    texts = {name: ("\n".join(lines) + "\n").encode() for name, lines in made.items()}
    table = JobTable(
        job_id=[row[0] for row in rows],
        submit_s=[row[1] for row in rows],
        runtime_s=[row[3] for row in rows],
        nodes=[row[4] for row in rows],
        user=[row[0] % 3 for row in rows],
        labels={"user": ("x", "y", "z")},
    )
    with tempfile.TemporaryDirectory() as folder:
        write_trace(table, Path(folder) / "own.parquet")
        texts["parquet"] = (Path(folder) / "own.parquet").read_bytes()
    return texts


def real_heads(lines: int = 60) -> dict[str, bytes]:
    """The first lines of the real traces, where there are any at hand."""
    folder = os.environ.get("KILOWAIT_DATA")
    found: dict[str, bytes] = {}
    if folder:
        for room in ("swf", "alcf", "slurm", "slurm/fixtures", "gpu/*", "google2011/*"):
            for path in sorted(Path(folder).glob(f"{room}/*.csv.gz" if "*" in room else f"{room}/*.gz")):
                with gzip.open(path) as file:
                    found[f"real {path.name}"] = b"".join(file.readline() for _ in range(lines))
    return found


def mutated_line(line: str, rng: np.random.Generator) -> str:
    """The line with one thing wrong."""
    mark = (
        "|"
        if "|" in line
        else ";"
        if line.count(";") > 3
        else ","
        if "," in line and "{" not in line
        else " "
    )
    fields = line.split(mark)
    place, at = int(rng.integers(len(fields))), int(rng.integers(len(line) + 1))
    nasty = NASTY[int(rng.integers(len(NASTY)))]
    match int(rng.integers(11)):
        case 0:
            return line[:at]
        case 1:
            return line[:at] + line[at + 1 :]
        case 2:
            return line[:at] + chr(int(rng.integers(1, 256))) + line[at:]
        case 3 | 4:
            fields[place] = nasty
        case 5:
            del fields[place]
        case 6:
            fields.insert(place, nasty)
        case 7:
            other = int(rng.integers(len(fields)))
            fields[place], fields[other] = fields[other], fields[place]
        case 8:
            fields[place] = f"-{fields[place]}"
        case 9:
            fields[place] = fields[place] * 3
        case _:
            return line[:at] + "\n" + line[at:]
    return mark.join(fields)


def mutated(data: bytes, rng: np.random.Generator) -> tuple[bytes, int]:
    """A file with some of its lines broken, and how many."""
    lines = data.decode("utf-8", "replace").split("\n")
    chosen = rng.random(len(lines)) < rng.choice([0.05, 0.3, 1.0])
    if rng.random() < 0.8:
        chosen[: min(6, len(lines) // 4)] = (
            False  # Mostly leave the header alone: it decides what is tried at all.
        )
    lines = [mutated_line(line, rng) if hit else line for line, hit in zip(lines, chosen, strict=True)]
    match int(rng.integers(12)):
        case 0:
            rng.shuffle(lines)
        case 1:
            lines = lines + lines
        case 2:
            lines = lines[1:]
    made = "\n".join(lines).encode("utf-8", "surrogatepass")
    match int(rng.integers(24)):
        case 0:
            made = made.replace(b"\n", b"\r\n")
        case 1:
            made = gzip.compress(made)
            made = made[: int(rng.integers(1, len(made) + 1))]
        case 2:
            made = made.decode("utf-8").encode("utf-16")
        case 3:
            made = made.decode("utf-8").encode("latin-1", "replace")
        case 4:
            made = flipped(made, rng)
    return made, int(chosen.sum())


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, the end perhaps cut off."""
    array = np.frombuffer(data, np.uint8).copy()
    places = rng.integers(0, len(array), int(rng.integers(1, 8)))
    array[places] = rng.integers(0, 256, len(places))
    return array.tobytes()[: len(array) - int(rng.integers(0, 3)) * int(rng.integers(0, 40))]


class Witness:
    """What the untouched lines of a sample say, job by job: they must say it still among broken ones."""

    def __init__(self, data: bytes, job_at: str, header: int, end: str, path: Path) -> None:
        self.job_at = re.compile(job_at)
        lines = data.decode().split("\n")
        self.header = lines[:header]
        whole = [
            line for line in lines[header:] if line.endswith(end)
        ]  # Not a record's first of several lines.
        self.lines = {int(found.group(1)): line for line in whole if (found := self.job_at.search(line))}
        path.write_bytes(data)
        jobs, _ = read_trace_with_report(path)
        columns = (jobs[name].tolist() for name in ("job_id", "submit_s", "runtime_s", "nodes"))
        self.said = {job: rest for job, *rest in zip(*columns, strict=True)}

    def check(self, made: bytes, jobs: JobTable) -> int:
        """Compare; returns how many lines were compared."""
        text = made.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        claimed = Counter(found.group(1) for line in text if (found := self.job_at.search(line)))
        there = set(text)
        intact = [
            job
            for job, line in self.lines.items()
            if line in there
            and sum(claimed[form] for form in {str(job), f"{job:04d}", f"{job:05d}"}) == 1
            and job in self.said
        ]
        if text[: len(self.header)] != self.header or 2 * len(intact) < len(text):
            return 0  # Another header, or too little left to say what the file is.
        row_of = {job: row for row, job in enumerate(jobs["job_id"].tolist())}
        for job in intact:
            assert job in row_of, f"job {job} is lost, its line was in order"
            row = row_of[job]
            seen = [jobs[name][row] for name in ("submit_s", "runtime_s", "nodes")]
            assert seen == self.said[job], f"job {job} reads {seen}, its line says {self.said[job]}"
        return len(intact)


WITNESSED = {
    "swf": (r"^(\d+) ", 5, ""),
    "own_csv": (r"^(\d+),", 1, ""),
    "djc": (r'^"[^"]*",(\d+),', 1, ""),
    "lumos": (r"^\d+,(\d+),", 1, ""),
    "nrel": (r"^(\d+);", 1, ""),
    "events": (r"jobid_(\d+)", 0, ""),
    "sacct": (r"^[^|.]*\|(\d+)\|", 1, "/home/u"),
    "openb": (r"^openb-pod-(\d+),", 1, ""),
    "helios": (r"^(\d+),", 1, ""),
}
"""Where a line of these samples names its job, the lines of their headers, and how a whole line ends."""


def check(path: Path, made: bytes, witness: Witness | None, keep: bool) -> tuple[str, int]:
    """Read the file; what came of it and how many lines were compared. AssertionError: a promise is broken."""
    path.write_bytes(made)
    try:
        jobs, ledger = read_trace_with_report(path, never_ran="keep" if keep else "drop")
    except KilowaitError as refused:
        assert str(refused), "an error without words"
        return "refused", 0
    assert ledger.jobs == len(jobs) > 0, "the ledger counts other jobs than there are"
    told = ledger.jobs + ledger.dropped + ledger.folded
    assert ledger.rows_read == told, f"{ledger.rows_read} rows read, {told} accounted for"
    assert jobs.order is None, "not sorted"
    assert np.isfinite(jobs["submit_s"]).all() and np.isfinite(jobs["runtime_s"]).all(), (
        "times that are no numbers"
    )
    json.dumps(dict(jobs.meta), allow_nan=False)
    if witness is None or any("seen before" in entry.reason for entry in ledger.entries):
        return "read", 0  # A broken line that took another's number may come first and keep it.
    return "read", witness.check(made, jobs)


def fuzz(lines: int, seed: int, *, real: bool = True, report: bool = False) -> Counter[str]:
    """Feed at least `lines` mutated lines; raises AssertionError at the first broken promise."""
    rng = np.random.default_rng(seed)
    pool = samples() | gpu_samples() | (real_heads() if real else {})
    names = sorted(pool)
    tally: Counter[str] = Counter()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        path = Path(folder) / "log"
        witnesses = {name: Witness(pool[name], *where, path) for name, where in WITNESSED.items()}
        while tally["lines"] < lines:
            name = names[int(rng.integers(len(names)))]
            made, broken = (flipped(pool[name], rng), 1) if name == "parquet" else mutated(pool[name], rng)
            try:
                outcome, compared = check(path, made, witnesses.get(name), bool(rng.integers(2)))
            except Exception as problem:
                held = Path(tempfile.gettempdir()) / "kilowait_fuzz_failure"
                held.write_bytes(made)
                said = "".join(traceback.format_exception(problem)[-4:])
                raise AssertionError(
                    f"{name}: {type(problem).__name__}: {problem}; kept as {held}\n{said}"
                ) from problem
            tally[outcome] += 1
            tally["compared"] += compared
            tally["files"] += 1
            tally["lines"] += broken
            if report and tally["files"] % 5000 == 0:
                sys.stdout.write(f"{dict(tally)} in {time.perf_counter() - begun:.0f} s\n")
                sys.stdout.flush()
    return tally


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000, help="mutated lines to feed")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begun = time.perf_counter()
    tally = fuzz(given.lines, given.seed, report=True)
    sys.stdout.write(f"nothing found: {dict(tally)} in {time.perf_counter() - begun:.0f} s\n")


if __name__ == "__main__":
    main()
