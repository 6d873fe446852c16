"""Learned workload generators on three logs: how like the log their jobs are, what people wait, what is given away.

Each generator is fitted to a whole log and asked for as many jobs as it has. The classifier, the columns and the
correlations are those of `kilowait synth score`; waits are simulated on the log's machine with EASY backfilling,
for three seeds. For privacy the generator is fitted again to every second week of the log; the other weeks are held
out.

    python -m benchmarks.reproduce synthetic --data DIR
    python -m benchmarks.reproduce.synthetic --data DIR --logs Theta --models transformer
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.reproduce.layout import table
from benchmarks.reproduce.sources import Sources
from kilowait.cluster import Cluster
from kilowait.errors import KilowaitError
from kilowait.evaluation import metrics
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.synth import GENERATORS, fit_generator
from kilowait.synth.facts import WEEK_S, clock_zero_s
from kilowait.synth.fidelity import fidelity
from kilowait.synth.privacy import leaks
from kilowait.traces import read_trace

__all__ = ["every_second_week", "measured", "results", "text"]

LOGS = {
    "SDSC-SP2": "swf/SDSC-SP2-1998-4.2-cln.swf.gz",
    "HPC2N": "swf/HPC2N-2002-2.2-cln.swf.gz",
    "Theta": "alcf/rlhpc_theta_2023_feb_dec.swf.gz",
}
"""By their path in the folder of logs."""
POLICIES = ("fcfs", "sjf")
SEEDS = (0, 1, 2)
Say = Callable[[str], None]


def results(sources: Sources, say: Say) -> dict[str, Any]:
    """The whole table."""
    return chosen(sources, say, list(LOGS), list(GENERATORS))


def chosen(sources: Sources, say: Say, logs: Sequence[str], models: Sequence[str]) -> dict[str, Any]:
    """Some logs and generators."""
    found: dict[str, Any] = {}
    for log in logs:
        jobs = read_trace(
            sources.file(LOGS[log], "it is one of the public logs this table is made on")
        ).sorted()
        found[log] = {}
        for model in models:
            say(f"{log}, {model}")
            found[log][model] = measured(jobs, model, say)
    return found


def measured(
    jobs: JobTable, model: str, say: Say, *, seeds: Sequence[int] = SEEDS, **settings: Any
) -> dict[str, Any]:
    """One generator on one log."""
    machine = Cluster.from_nodes(int(jobs.meta["max_procs"]))
    began = time.process_time()
    generator = fit_generator(jobs, model, seed=0, **settings)
    fit_s = time.process_time() - began
    say(f"{model}: fitted in {fit_s:.0f} CPU seconds")
    real = waits(jobs, machine)
    made, ratios, sample_s = [], [], 0.0
    for seed in seeds:
        began = time.process_time()
        made.append(generator.sample(len(jobs), seed=seed))
        sample_s += (time.process_time() - began) / len(seeds)
        ratios.append({name: wait / real[name] for name, wait in waits(made[-1], machine).items()})
        say(f"{model}, seed {seed}: waits {ratios[-1]}")
    alike = [fidelity(jobs, one) for one in made]
    seen, held_out = every_second_week(jobs)
    gave = leaks(fit_generator(seen, model, seed=0, **settings).sample(len(seen), seed=0), seen, held_out)
    say(f"{model}: AUC {[round(one.auc, 3) for one in alike]}, {gave}")
    return {
        "jobs": len(jobs),
        "fit_s": fit_s,
        "sample_s": sample_s,
        "auc": [one.auc for one in alike],
        "auc_history": [one.auc_history for one in alike],
        "worst_ks": [asdict(one.worst_ks) for one in alike],
        "worst_pair": [asdict(one.worst_pair) for one in alike],
        "real_wait_s": real,
        "wait_ratio": ratios,
        "leaks": asdict(gave),
    }


def waits(jobs: JobTable, machine: Cluster) -> dict[str, float]:
    """Mean waits, seconds, by rule."""
    return {
        policy: float(metrics(simulate(jobs, machine, policy=policy, backfill="easy"))["mean_wait_s"])
        for policy in POLICIES
    }


def every_second_week(jobs: JobTable) -> tuple[JobTable, JobTable]:
    """The jobs of even and of odd weeks.

    >>> weekly = JobTable(
    ...     job_id=[1, 2, 3], submit_s=[0, 8 * 86400, 15 * 86400], runtime_s=[1] * 3, nodes=[1] * 3
    ... )
    >>> [table["job_id"].tolist() for table in every_second_week(weekly)]
    [[1, 3], [2]]
    """
    odd = (jobs["submit_s"] + clock_zero_s(jobs)) // WEEK_S % 2 == 1
    return jobs[~odd], jobs[odd]


def text(found: dict[str, Any]) -> str:
    """The tables."""
    likeness, privacy = [], []
    for log, models in found.items():
        for model, one in models.items():
            ks = [worst["ks"] for worst in one["worst_ks"]]
            place = int(np.argmax(ks))
            likeness.append(
                [
                    f"{log}, {model}",
                    _range(one["auc"], 3),
                    _range(one["auc_history"], 3),
                    f"{ks[place]:.3f} {one['worst_ks'][place]['column']}",
                    *(_range([ratio[policy] for ratio in one["wait_ratio"]], 2) for policy in POLICIES),
                    f"{one['fit_s']:.0f}",
                    f"{one['sample_s']:.0f}",
                ]
            )
            gave = one["leaks"]
            privacy.append(
                [
                    f"{log}, {model}",
                    f"{100 * gave['copies']:.1f} ({100 * gave['copies_of_held_out']:.1f})",
                    f"{100 * gave['copied_pairs']:.1f} ({100 * gave['copied_pairs_of_held_out']:.1f})",
                    f"{100 * gave['nearer_to_seen']:.1f}",
                    f"{gave['membership_auc']:.3f}",
                    f"{100 * gave['membership_advantage']:.1f}",
                ]
            )
    heads = ["", "AUC", "with history", "worst KS", "wait, fcfs", "wait, sjf", "fit, CPU s", "sample, CPU s"]
    gives = [
        "",
        "% copies (held out)",
        "% pairs (held out)",
        "% nearer to seen",
        "membership AUC",
        "advantage, %",
    ]
    return (
        f"{table(heads, likeness)}\n\nwaits: generated over real, with EASY; ranges over seeds {SEEDS}\n\n"
        f"{table(gives, privacy)}\n\nfitted to every second week, beside the weeks between"
    )


def _range(values: Sequence[float], digits: int) -> str:
    """The least and the most.

    >>> _range([1.0, 1.21], 2), _range([0.5], 3)
    ('1.00-1.21', '0.500')
    """
    low, high = (f"{end:.{digits}f}" for end in (min(values), max(values)))
    return low if low == high else f"{low}-{high}"


def main(words: Sequence[str] | None = None) -> int:
    """Some logs and generators only."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.synthetic", description=__doc__)
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--models", nargs="+", choices=GENERATORS, default=list(GENERATORS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    try:
        found = chosen(Sources.find(given.data), say, given.logs, given.models)
    except KilowaitError as problem:
        say(f"error: {problem}")
        return 2
    sys.stdout.write((json.dumps(found, indent=2) if given.json else text(found)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
