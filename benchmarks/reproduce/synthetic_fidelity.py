"""Fidelity and privacy of learned workload generators on four logs, and simulated waits of their jobs.

Each generator is fitted once to a whole log and sampled for the same number of jobs, with three seeds. The classifier,
the columns and the correlations are those of `kilowait synth score`; waits are simulated with EASY backfilling on the
log's machine, for Philly on a GPU pool sized for a load of 70 %. The reference is the log itself with each
submission shifted by some minutes, which shows the achievable accuracy. For privacy a generator is fitted again to
every second week of the log; the other weeks are held out.

Finished cells (a log, a generator, fidelity or privacy) are saved in a folder and not computed again:

    python -m benchmarks.reproduce synthetic-fidelity --data DIR
    python -m benchmarks.reproduce.synthetic_fidelity --data DIR --logs Theta --models transformer
    python -m benchmarks.reproduce.synthetic_fidelity --data DIR --out runs/synthetic --processes 16
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.parallel_tasks import run_parallel
from benchmarks.reproduce.text_tables import table
from kilowait.cluster import Cluster
from kilowait.errors import KilowaitError, UnknownNameError
from kilowait.evaluation import metrics
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.rng import stream
from kilowait.synth import GENERATORS, fit_generator
from kilowait.synth.fidelity import fidelity
from kilowait.synth.log_schema import WEEK_S, unix_zero_s
from kilowait.synth.privacy_metrics import anonymity, privacy_metrics
from kilowait.traces import read_trace

__all__ = ["Cell", "every_second_week", "fidelity_of", "privacy", "results", "text"]

LOGS = {
    "SDSC-SP2": "swf/SDSC-SP2-1998-4.2-cln.swf.gz",
    "HPC2N": "swf/HPC2N-2002-2.2-cln.swf.gz",
    "Theta": "alcf/rlhpc_theta_2023_feb_dec.swf.gz",
    "Philly": "gpu/philly/sia_philly.csv.gz",
}
"""Log name to path in the folder of logs."""
POLICIES = ("fcfs", "sjf")
SEEDS = (0, 1, 2)
PARTS = ("likeness", "privacy")
FOLDER = "runs/synthetic"
POOL_LOAD = 0.7
"""Load of the GPU pool on which a log without a cluster is simulated."""
MOVED_S = 450.0
"""Maximum shift of the submissions of the log itself."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One unit of work."""

    log: str
    model: str
    part: str
    """One of `PARTS`."""
    seeds: tuple[int, ...]
    data: str
    folder: str

    @property
    def file(self) -> Path:
        """The file of the result."""
        return Path(self.folder, f"{self.log}-{self.model}-{self.part}.json")

    def saved_result(self) -> dict[str, Any] | None:
        """The saved result, if it has the same seeds."""
        if not self.file.is_file():
            return None
        saved: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return saved if saved["seeds"] == list(self.seeds) else None


def results(
    sources: Sources,
    say: Say,
    logs: Sequence[str] = tuple(LOGS),
    models: Sequence[str] = tuple(GENERATORS),
    seeds: Sequence[int] = SEEDS,
    folder: str = FOLDER,
    processes: int = 1,
) -> dict[str, Any]:
    """Results of some logs and generators; saved cells are not computed again."""
    for names, known, kind in ((logs, LOGS, "log"), (models, GENERATORS, "generator")):
        for name in names:
            if name not in known:
                raise UnknownNameError(kind, name, known)
    cells = [
        Cell(log, model, part, tuple(seeds), str(sources.data), folder)
        for log in logs
        for model in models
        for part in PARTS
    ]
    for log in logs:
        sources.file(LOGS[log], "it is one of the public logs of this table")
    pending = [cell for cell in cells if cell.saved_result() is None]
    pending.sort(key=lambda cell: -Path(cell.data, LOGS[cell.log]).stat().st_size)  # longest first
    Path(folder).mkdir(parents=True, exist_ok=True)
    say(f"{len(cells) - len(pending)} of {len(cells)} cells are in {folder}, {len(pending)} remain")
    run_parallel(run_cell, [(cell,) for cell in pending], processes, say)
    output: dict[str, Any] = {log: {model: {} for model in models} for log in logs}
    for cell in cells:
        output[cell.log][cell.model] |= {
            cell.part: cell.saved_result() or {"error": "it failed; see the message above"}
        }
    return output


def run_cell(cell: Cell) -> str:
    """Compute and save one cell; return a progress message."""
    start_s, cpu_start_s = time.perf_counter(), time.process_time()
    jobs = log_jobs(Path(cell.data, LOGS[cell.log]))
    try:
        result = fidelity_of(jobs, cell.model, cell.seeds) if cell.part == "likeness" else privacy(jobs, cell.model)
    except KilowaitError as error:
        result = {"error": " ".join(str(error).split())}
    seconds = {"cell_s": time.perf_counter() - start_s, "cell_cpu_s": time.process_time() - cpu_start_s}
    part_path = cell.file.with_name(f".{cell.file.name}.part")
    part_path.write_text(json.dumps({"seeds": cell.seeds, **seconds, **result}) + "\n", encoding="utf-8")
    os.replace(part_path, cell.file)
    summary = result.get("error") or ", ".join(
        f"{name} {result[name]}" for name in ("auc", "wait_ratio") if name in result
    )
    return f"{cell.log}, {cell.model}, {cell.part}: {seconds['cell_s']:.0f} s. {summary}"


def log_jobs(path: Path) -> JobTable:
    """A log by submission; in a log without a cluster, GPUs are counted as nodes."""
    jobs = read_trace(path).sorted()
    if "max_procs" in jobs.meta:
        return jobs
    columns = {name: jobs[name] for name in jobs.columns if name != "gpus"}
    columns["nodes"] = np.maximum(jobs["gpus"], 1)
    return JobTable(labels=jobs.labels, meta=jobs.meta, **columns)


def machine_of(jobs: JobTable) -> Cluster:
    """The cluster of the log; else a pool sized for a load of `POOL_LOAD`."""
    if "max_procs" in jobs.meta:
        return Cluster.from_nodes(int(jobs.meta["max_procs"]))
    mean_nodes = float((jobs["nodes"] * jobs["runtime_s"]).sum() / np.ptp(jobs["submit_s"]))
    return Cluster.from_nodes(max(int(jobs["nodes"].max()), round(mean_nodes / POOL_LOAD)))


def fidelity_of(jobs: JobTable, model: str, seeds: Sequence[int] = SEEDS, **settings: Any) -> dict[str, Any]:
    """The fidelity of the jobs of one generator."""
    machine = machine_of(jobs)
    start_s = time.process_time()
    generator = fit_generator(jobs, model, seed=0, **settings)
    fit_s, sample_s = time.process_time() - start_s, 0.0
    real = waits(jobs, machine)
    fidelities, ratios, small_classes = [], [], []
    for seed in seeds:
        start_s = time.process_time()
        sample = generator.sample(len(jobs), seed=seed)
        sample_s += (time.process_time() - start_s) / len(seeds)
        ratios.append({name: wait / real[name] for name, wait in waits(sample, machine).items()})
        fidelities.append(fidelity(jobs, sample))
        small_classes.append(anonymity(sample).jobs_below if "user" in sample else None)
    return {
        "jobs": len(jobs),
        "nodes": machine.nodes,
        "fit_s": fit_s,
        "sample_s": sample_s,
        "auc": [round(result.auc, 4) for result in fidelities],
        "auc_history": [result.auc_history for result in fidelities],
        "ks": [{column.column: column.ks for column in result.distances} for result in fidelities],
        "worst_pair": [asdict(result.worst_pair) for result in fidelities],
        "real_wait_s": real,
        "wait_ratio": ratios,
        "moved_ratio": [
            {name: wait / real[name] for name, wait in waits(shifted(jobs, seed), machine).items()} for seed in seeds
        ],
        "anonymity": small_classes,
        "real_anonymity": anonymity(jobs).jobs_below if "user" in jobs else None,
    }


def shifted(jobs: JobTable, seed: int) -> JobTable:
    """The same jobs with submissions shifted by some minutes."""
    by_s = stream(seed, "benchmarks.synthetic.moved").uniform(-MOVED_S, MOVED_S, len(jobs)).round()
    return jobs.with_columns(submit_s=jobs["submit_s"] + by_s).sorted()


def privacy(jobs: JobTable, model: str, **settings: Any) -> dict[str, Any]:
    """The privacy metrics of one generator fitted to every second week; the weeks between are held out."""
    training, held_out = every_second_week(jobs)
    sample = fit_generator(training, model, seed=0, **settings).sample(len(training), seed=0)
    return {"leaks": asdict(privacy_metrics(sample, training, held_out))}


def waits(jobs: JobTable, machine: Cluster) -> dict[str, float]:
    """Mean waits in seconds, by policy."""
    return {
        policy: float(
            metrics(simulate(jobs, machine, policy=policy, backfill="easy", on_oversized="drop"))["mean_wait_s"]
        )
        for policy in POLICIES
    }


def every_second_week(jobs: JobTable) -> tuple[JobTable, JobTable]:
    """The jobs of even and of odd weeks.

    >>> weekly = JobTable(job_id=[1, 2, 3], submit_s=[0, 8 * 86400, 15 * 86400], runtime_s=[1] * 3, nodes=[1] * 3)
    >>> [table["job_id"].tolist() for table in every_second_week(weekly)]
    [[1, 3], [2]]
    """
    odd = (jobs["submit_s"] + unix_zero_s(jobs)) // WEEK_S % 2 == 1
    return jobs[~odd], jobs[odd]


def text(output: dict[str, Any]) -> str:
    """Format the results as tables."""
    fidelities, privacy_rows, failed = [], [], []
    for log, models in output.items():
        moved_once = False
        for model, parts in models.items():
            for part, result in parts.items():
                if "error" in result:
                    failed.append(f"{log}, {model}, {part}: {result['error']}")
            result = parts["likeness"]
            if "error" not in result:
                if not moved_once:
                    fidelities.append(
                        [f"{log}, shifted by minutes", "", "", "", *_waits(result["moved_ratio"]), "", "", ""]
                    )
                    moved_once = True
                fidelities.append(_fidelity_row(f"{log}, {model}", result))
            if "error" not in parts["privacy"]:
                privacy_rows.append(_privacy_row(f"{log}, {model}", parts))
    heads = ["", "AUC", "with history", "worst KS", "wait, fcfs", "wait, sjf", "fit, s", "sample, s", "cell, s"]
    options = ["", "% copies (held out)", "% pairs (held out)", "% nearer to seen", "membership AUC", "advantage, %"]
    return (
        f"{table(heads, fidelities)}\n\n"
        "waits: generated over real, with EASY; ranges over seeds of samples; fit and sample in CPU seconds\n\n"
        f"{table([*options, '% below 5 users (log)'], privacy_rows)}\n\n"
        "fitted to every second week, beside the weeks between; the last column is of the whole log"
        + "".join(f"\nfailed: {line}" for line in failed)
    )


def _fidelity_row(name: str, result: dict[str, Any]) -> list[str]:
    worst = max(((ks, column) for columns in result["ks"] for column, ks in columns.items()))
    return [
        name,
        _range(result["auc"], 3),
        _range(result["auc_history"], 3),
        f"{worst[0]:.3f} {worst[1]}",
        *_waits(result["wait_ratio"]),
        f"{result['fit_s']:.0f}",
        f"{result['sample_s']:.0f}",
        f"{result['cell_s']:.0f}",
    ]


def _waits(ratios: Sequence[dict[str, float]]) -> list[str]:
    return [_range([ratio[policy] for ratio in ratios], 2) for policy in POLICIES]


def _privacy_row(name: str, parts: dict[str, Any]) -> list[str]:
    privacy_metrics_of, small_classes = (parts["privacy"]["leaks"], parts["likeness"].get("anonymity", [None])[0])
    return [
        name,
        f"{100 * privacy_metrics_of['copies']:.1f} ({100 * privacy_metrics_of['copies_of_held_out']:.1f})",
        f"{100 * privacy_metrics_of['copied_pairs']:.1f} ({100 * privacy_metrics_of['copied_pairs_of_held_out']:.1f})",
        f"{100 * privacy_metrics_of['nearer_to_seen']:.1f}",
        f"{privacy_metrics_of['membership_auc']:.3f}",
        f"{100 * privacy_metrics_of['membership_advantage']:.1f}",
        "-"
        if small_classes is None
        else f"{100 * small_classes:.1f} ({100 * parts['likeness']['real_anonymity']:.1f})",
    ]


def _range(values: Sequence[float], digits: int) -> str:
    """The range of some values as text.

    >>> _range([1.0, 1.21], 2), _range([0.5], 3)
    ('1.00-1.21', '0.500')
    """
    low, high = (f"{end:.{digits}f}" for end in (min(values), max(values)))
    return low if low == high else f"{low}-{high}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of some logs and generators."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce.synthetic_fidelity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", metavar="DIR", help="folder of real logs (default: KILOWAIT_DATA)")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--models", nargs="+", choices=GENERATORS, default=list(GENERATORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), help="seeds of the samples")
    parser.add_argument("--out", default=FOLDER, metavar="DIR", help="folder for finished cells")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="parallel processes")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    try:
        output = results(
            Sources.find(options.data), say, options.logs, options.models, options.seeds, options.out, options.processes
        )
    except KilowaitError as error:
        say(f"error: {error}")
        return 2
    sys.stdout.write((json.dumps(output, indent=2) if options.json else text(output)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
