"""Fuzzing of the trace readers: every error is a KilowaitError, every row is accounted for, no change is silent.

    python -m benchmarks.fuzz_readers --cases 5000 --seed 0

A case is a mutated log, a log in another form with the same jobs (comments, header, compression), or a random table
that is written and read. Sample logs are synthetic; if KILOWAIT_DATA names the folder of real traces, their first lines
are used too.
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

from benchmarks.fuzz_archives import archive_samples
from benchmarks.fuzz_gpu import gpu_samples, gpu_tables
from benchmarks.fuzz_tables import check_same, check_written, compressed, random_table, variant
from kilowait.errors import KilowaitError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, read_trace_with_report, write_trace

_TOKENS = (
    "nan inf -inf 1e400 -5 -1 0 99999999999999999999 1e15 -1e300 0x10 1_000 --1 - . 1.2.3 5. .5 1-2 {1,2} | , ; \" ' # "
    "Unknown None UNLIMITED Partition_Limit 2021-13-45T99:99:99 9999-12-31T23:59:59 0001-01-01T00:00:00+23:59 "
    "2021-02-03T04:05:06Z 99999999-00:00:00 7:7:7:7 123_[4-9] 123.batch 12+1 CANCELLED é \x00 \x1f \u2028 \u0663 "
    "4294967295 9223372036854775808 170141183460469231731687303715884105728 1e-320 00 -0 1,024 ٣"
)
NASTY = [*_TOKENS.split(" "), "", " ", "\t", "\r", "\r\n", '"a', "x" * 300, "9" * 400, "9" * 5000 + "-1"]
"""Replacement values of fields."""


def samples() -> dict[str, bytes]:
    """A small log in every format."""
    rng = np.random.default_rng(7)
    rows = [
        (i + 1, 60 * i, int(rng.integers(0, 900)), int(rng.integers(0, 5000)), int(rng.integers(1, 64)))
        for i in range(40)
    ]
    swf = ["; Version: 2.2", "; MaxProcs: 64 (16 x 4)", "; UnixStartTime: 1000000000", "; Queue: 1 batch", ";"]
    extended, wide, events, djc, lumos, nrel, sacct, other = [], [], [], [], [], [], [], []
    own = ["job_id,submit_s,runtime_s,estimate_s,nodes,user,queue,status,wait_s,after_id,think_s"]
    djc.append(
        "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,START_TIMESTAMP,END_TIMESTAMP,USERNAME_GENID,"
        "PROJECT_NAME_GENID,QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,NODES_USED,NODES_REQUESTED,CORES_USED,EXIT_STATUS"
    )
    lumos.append(",job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,new_status")
    nrel.append(
        "job_id;user;account;partition;qos;wallclock_req;nodes_req;processors_req;gpus_req;submit_time;start_time;"
        "end_time;run_time;state;name"
    )
    sacct.append(
        "JobID|JobIDRaw|User|Account|Partition|QOS|JobName|Submit|Start|End|Elapsed|Timelimit|AllocNodes|AllocCPUS|"
        "ReqMem|AllocTRES|State|ExitCode|SubmitLine|WorkDir"
    )
    other.append("ConsumedEnergyRaw|CPUTimeRAW|ReqCPUS|ReqMem|ReqNodes|ResvCPURAW|Submit|TimelimitRaw|Partition|State")
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
        submit_line = "sbatch --wrap=\nx | y" if job % 8 == 0 else "sbatch x.sh"
        state = "CANCELLED by 1000" if job % 5 == 0 else "COMPLETED"
        key = f"{job}_{job % 3}" if job % 7 == 0 else str(job)
        sacct.append(
            f"{key}|{job}|u{job % 4}|acc|batch|normal|{name}|{ta}|{tb}|{tc}|0-01:00:00|2-12:30:00|{procs}|{procs * 4}|"
            f"4Gn|billing=1,cpu={procs * 4},mem=4G,node={procs},gres/gpu=2|{state}|0:0|{submit_line}|/home/u"
        )
        if job % 3 == 0:
            sacct.append(f"{key}.batch|{job}.batch||acc|||batch|{tb}|{tb}|{tc}|0-01:00:00||1|4||cpu=4|COMPLETED|0:0||")
        other.append(f"{run * 10}|{run * 4}|4|100Mc|1|{wait}|{ta}|{limit // 60}|batch|{state}")
        own.append(f'{job},{submit}.5,{run},{limit},{procs},"u, {job % 4}",batch,1,{wait},,')
    lines_by_format = {
        "swf": swf,
        "swf19": extended,
        "swf21": wide,
        "events": events,
        "djc": djc,
        "lumos": lumos,
        "nrel": nrel,
    }
    lines_by_format |= {"sacct": sacct, "sacct_bare": other, "own_csv": own}
    texts = {name: ("\n".join(lines) + "\n").encode() for name, lines in lines_by_format.items()}
    table = JobTable(
        job_id=[row[0] for row in rows],
        submit_s=[row[1] for row in rows],
        runtime_s=[row[3] for row in rows],
        nodes=[row[4] for row in rows],
        user=[row[0] % 3 for row in rows],
        labels={"user": ("x", "y", "z")},
    )
    named = random_names(table)
    with tempfile.TemporaryDirectory() as folder:
        write_trace(table, Path(folder) / "own.parquet")
        texts["parquet"] = (Path(folder) / "own.parquet").read_bytes()
        for name, own_table in {"own_names": named, **gpu_tables()}.items():
            write_trace(own_table, Path(folder) / "own.csv")
            texts[name] = (Path(folder) / "own.csv").read_bytes()
    return texts


def random_names(table: JobTable) -> JobTable:
    """The table with users whose names are formulas, have line ends, or look like rows."""
    names = ("=1+1", "'=1", "a\n2,60,5,5,1,3", "a\r\nb", " x ", 'a"b,', "#x", "-1")
    codes = np.arange(len(table)) % len(names)
    return JobTable(
        labels={"user": names}, **{name: table[name] for name in table.columns if name != "user"}, user=codes
    )


def real_heads(lines: int = 60) -> dict[str, bytes]:
    """The first lines of the real traces, if available."""
    folder = os.environ.get("KILOWAIT_DATA")
    heads: dict[str, bytes] = {}
    if folder:
        for folder_name in ("swf", "alcf", "slurm", "slurm/fixtures", "gpu/*", "google2011/*"):
            for path in sorted(
                Path(folder).glob(f"{folder_name}/*.csv.gz" if "*" in folder_name else f"{folder_name}/*.gz")
            ):
                with gzip.open(path) as file:
                    heads[f"real {path.name}"] = b"".join(file.readline() for _ in range(lines))
    return heads


def mutated_line(line: str, rng: np.random.Generator) -> str:
    """The line with one error."""
    delimiter = "|" if "|" in line else ";" if line.count(";") > 3 else "," if "," in line and "{" not in line else " "
    fields = line.split(delimiter)
    field, position = int(rng.integers(len(fields))), int(rng.integers(len(line) + 1))
    replacement = NASTY[int(rng.integers(len(NASTY)))]
    match int(rng.integers(11)):
        case 0:
            return line[:position]
        case 1:
            return line[:position] + line[position + 1 :]
        case 2:
            return line[:position] + chr(int(rng.integers(1, 256))) + line[position:]
        case 3 | 4:
            fields[field] = replacement
        case 5:
            del fields[field]
        case 6:
            fields.insert(field, replacement)
        case 7:
            other = int(rng.integers(len(fields)))
            fields[field], fields[other] = fields[other], fields[field]
        case 8:
            fields[field] = f"-{fields[field]}"
        case 9:
            fields[field] = fields[field] * 3
        case _:
            return line[:position] + "\n" + line[position:]
    return delimiter.join(fields)


def mutated(data: bytes, rng: np.random.Generator) -> tuple[bytes, int]:
    """A file with some broken lines, and their number."""
    lines = data.decode("utf-8", "replace").split("\n")
    chosen = rng.random(len(lines)) < rng.choice([0.05, 0.3, 1.0])
    if rng.random() < 0.8:
        chosen[: min(6, len(lines) // 4)] = False  # Usually keep the header, which decides which reader is tested.
    lines = [mutated_line(line, rng) if broken else line for line, broken in zip(lines, chosen, strict=True)]
    match int(rng.integers(12)):
        case 0:
            rng.shuffle(lines)
        case 1:
            lines = lines + lines
        case 2:
            lines = lines[1:]
    result = "\n".join(lines).encode("utf-8", "surrogatepass")
    match int(rng.integers(24)):
        case 0:
            result = result.replace(b"\n", b"\r\n")
        case 1 | 5 | 6:
            result = compressed(result, rng, truncated=bool(rng.integers(2)))
        case 7:
            result = flipped(compressed(result, rng), rng)
        case 8:
            result = b"# note\n" * int(rng.integers(1, 400)) + result
        case 2:
            result = result.decode("utf-8").encode("utf-16")
        case 3:
            result = result.decode("utf-8").encode("latin-1", "replace")
        case 4:
            result = flipped(result, rng)
    return result, int(chosen.sum())


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """The data with some bytes changed and sometimes truncated."""
    array = np.frombuffer(data, np.uint8).copy()
    places = rng.integers(0, len(array), int(rng.integers(1, 8)))
    array[places] = rng.integers(0, 256, len(places))
    return array.tobytes()[: len(array) - int(rng.integers(0, 3)) * int(rng.integers(0, 40))]


class IntactLines:
    """Expected values of the intact lines of a sample; they must not change among broken lines."""

    def __init__(self, data: bytes, job_at: str, header: int, end: str, path: Path) -> None:
        self.job_at = re.compile(job_at)
        lines = data.decode().split("\n")
        self.header = lines[:header]
        complete_lines = [
            line for line in lines[header:] if line.endswith(end)
        ]  # Excludes the first line of multi-line records.
        self.lines = {int(hit.group(1)): line for line in complete_lines if (hit := self.job_at.search(line))}
        path.write_bytes(data)
        jobs, _ = read_trace_with_report(path)
        columns = (jobs[name].tolist() for name in ("job_id", "submit_s", "runtime_s", "nodes"))
        self.expected = {job: rest for job, *rest in zip(*columns, strict=True)}

    def check(self, data_mutated: bytes, jobs: JobTable) -> int:
        """Check the jobs of intact lines; return how many were compared."""
        text = data_mutated.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        occurrences = Counter(hit.group(1) for line in text if (hit := self.job_at.search(line)))
        lines_present = set(text)
        intact = [
            job
            for job, line in self.lines.items()
            if line in lines_present
            and sum(occurrences[form] for form in {str(job), f"{job:04d}", f"{job:05d}"}) == 1
            and job in self.expected
        ]
        if text[: len(self.header)] != self.header or 2 * len(intact) < len(text):
            return 0  # Another header, or too few intact lines to detect the format.
        row_of = {job: row for row, job in enumerate(jobs["job_id"].tolist())}
        enclosed = "\n".join(name for names in jobs.labels.values() for name in names if "\n" in name)
        for job in intact:
            if self.lines[job] in enclosed:
                continue  # Two broken quotes made a sound text of the lines between them.
            assert job in row_of, f"job {job} is lost although its line is intact"
            row = row_of[job]
            values = [jobs[name][row] for name in ("submit_s", "runtime_s", "nodes")]
            assert values == self.expected[job], f"job {job} reads {values}, its line says {self.expected[job]}"
        return len(intact)


SAMPLES = {
    "swf": (r"^(\d+) ", 5, ""),
    "own_csv": (r"^(\d+),", 1, ""),
    "djc": (r'^"[^"]*",(\d+),', 1, ""),
    "lumos": (r"^\d+,(\d+),", 1, ""),
    "nrel": (r"^(\d+);", 1, ""),
    "events": (r"jobid_(\d+)", 0, ""),
    "sacct": (r"^[^|.]*\|(\d+)\|", 1, "/home/u"),
    "fdata": (r"^jid_(\d+),", 1, ""),
    "oda": (r"^(\d+),", 1, ""),
    "opendc": (r"^(\d+),", 1, ""),
    "openb": (r"^openb-pod-(\d+),", 1, ""),
    "helios": (r"^(\d+),", 1, ""),
}
"""By sample: the pattern of the job number, the number of header lines, and the end of a complete line."""


def check(path: Path, data_mutated: bytes, intact_lines_of: IntactLines | None, keep: bool) -> tuple[str, int]:
    """Read the file; return the outcome and the number of compared lines. AssertionError: a requirement is violated."""
    path.write_bytes(data_mutated)
    try:
        jobs, report_read = read_trace_with_report(path, never_ran="keep" if keep else "drop")
    except KilowaitError as refused:
        assert str(refused), "an error without a message"
        return "refused", 0
    assert report_read.jobs == len(jobs) > 0, "the cleaning report counts other jobs than there are"
    accounted = report_read.jobs + report_read.dropped + report_read.folded
    assert report_read.rows_read == accounted, f"{report_read.rows_read} rows read, {accounted} accounted for"
    assert jobs.order is None, "not sorted"
    assert np.isfinite(jobs["submit_s"]).all() and np.isfinite(jobs["runtime_s"]).all(), "times that are no numbers"
    json.dumps(dict(jobs.meta), allow_nan=False)
    if len(data_mutated) % 4 == 0:
        check_written(jobs, path.parent)
    if intact_lines_of is None or any("seen before" in entry.reason for entry in report_read.entries):
        return "read", 0  # A broken line may have taken the number of another job.
    return "read", intact_lines_of.check(data_mutated, jobs)


def check_variant(path: Path, data: bytes, changed: bytes) -> None:
    """A log in another form must be read as the same jobs."""
    tables = []
    for content in (data, changed):
        path.write_bytes(content)
        tables.append(read_trace_with_report(path, never_ran="keep"))
    (jobs, expected), (found, report) = tables
    assert report.format == expected.format, f"read as {report.format}, {report.format_reason}"
    assert [(e.kind, e.count) for e in report.entries if e.kind != "note"] == [
        (e.kind, e.count) for e in expected.entries if e.kind != "note"
    ], f"{expected.lines()} became {report.lines()}"
    check_same(found, jobs, CleaningReport(), "variant")


def fuzz(cases: int, seed: int, *, real: bool = True, report: bool = False) -> Counter[str]:
    """Try this many cases; raises AssertionError at the first violated requirement."""
    rng = np.random.default_rng(seed)
    samples_by_name = samples() | gpu_samples() | archive_samples() | (real_heads() if real else {})
    names = sorted(samples_by_name)
    counts: Counter[str] = Counter()
    start_time = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        path = Path(folder) / "log"
        intact_lines = {name: IntactLines(samples_by_name[name], *spec, path) for name, spec in SAMPLES.items()}
        readable = [name for name in names if not name.startswith("real")]
        while counts["cases"] < cases:
            name = names[int(rng.integers(len(names)))]
            counts["cases"] += 1
            try:
                match int(rng.integers(8)):
                    case 0:
                        name = "a written table"
                        counts["written"] += check_written(random_table(rng), Path(folder))
                    case 1:
                        name = readable[int(rng.integers(len(readable)))]
                        changed = variant(name, samples_by_name[name], rng)
                        path.write_bytes(changed)
                        check_variant(path, samples_by_name[name], changed)
                        counts["variants"] += 1
                    case _:
                        sample = samples_by_name[name]
                        content, broken = (flipped(sample, rng), 1) if name == "parquet" else mutated(sample, rng)
                        outcome, compared = check(path, content, intact_lines.get(name), bool(rng.integers(2)))
                        counts["mutations"] += 1
                        counts[outcome] += 1
                        counts["compared"] += compared
                        counts["lines"] += broken
            except Exception as error:
                failure_path = Path(tempfile.gettempdir()) / "kilowait_fuzz_failure"
                failure_path.write_bytes(path.read_bytes() if path.exists() else b"")
                trace_text = "".join(traceback.format_exception(error)[-4:])
                what = f"case {counts['cases']}, {name}: {type(error).__name__}: {error}"
                raise AssertionError(f"{what}; kept as {failure_path}\n{trace_text}") from error
            if report and counts["cases"] % 5000 == 0:
                sys.stdout.write(f"{dict(counts)} in {time.perf_counter() - start_time:.0f} s\n")
                sys.stdout.flush()
    return counts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50_000, help="mutated logs, changed logs and tables to try")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start_time = time.perf_counter()
    counts = fuzz(options.cases, options.seed, report=True)
    found = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    sys.stdout.write(f"nothing found: {found}, in {time.perf_counter() - start_time:.0f} s\n")


if __name__ == "__main__":
    main()
