"""The command line: which table, from which folders."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.reproduce import (
    batch_learning,
    gaia,
    gavel,
    gpu_learning,
    lets_wait_awhile,
    openb,
    power_budget,
    power_learning,
    prediction_accuracy,
    rlscheduler,
    simulator_speed,
    synthetic_fidelity,
    synthetic_training,
    tsafrir,
)
from benchmarks.reproduce.data_paths import Sources
from kilowait.errors import KilowaitError

TABLES = {
    "rlscheduler": rlscheduler,
    "tsafrir": tsafrir,
    "simulators": simulator_speed,
    "lets-wait-awhile": lets_wait_awhile,
    "gaia": gaia,
    "openb": openb,
    "gavel": gavel,
    "learning": batch_learning,
    "energy-learning": power_learning,
    "gpu-learning": gpu_learning,
    "foresight": prediction_accuracy,
    "budget": power_budget,
    "synthetic": synthetic_fidelity,
    "synthetic-training": synthetic_training,
}
OWN = {"synthetic-training": synthetic_training.main}
"""Tables with options of their own."""

HELP = """\
tables:
  rlscheduler       RLScheduler (SC'20) on lublin_256: its rules again, start by start, and kilowait on its windows
  tsafrir           EASY, EASY-SJBF and perfect estimates on KTH-SP2, SDSC-SP2, SDSC-BLUE (TPDS'07)
  simulators        speed of other simulators beside ours, and how many of their starts are ours
  lets-wait-awhile  jobs moved to cleaner hours, Scenario II (Middleware'21): emissions avoided in three countries
  gaia              GAIA's waiting policies (ASPLOS'24) on its 1,000 jobs and the GB series, where its job list is there
  openb             FGD (ATC'23) on Alibaba's openb cluster: how full six scores get its GPUs, and one of ours
  gavel             Gavel (OSDI'20): completion times on three types of GPU under five policies
  learning          ours: a search, PPO, D3QN, SAC and look-ahead against nine rules on six logs, on later jobs;
                    trains for hours what is not in runs/learning (see python -m benchmarks.reproduce.batch_learning)
  energy-learning   ours: a learned policy that steers power beside levers written by hand, on three ALCF logs
  gpu-learning      ours: D3QN, SAC, PPO and a search against rules on a mixed GPU cluster, three loads;
                    trains for hours what is not in runs/gpu-learning (see python -m benchmarks.reproduce.gpu_learning)
  foresight         ours: predicted run times, waits and energy on six logs, by simple rules and by trees; minutes,
                    less with --logs KTH-SP2
  budget            ours: a budget of power planned with predicted watts, on Kabré's measured joules; two minutes
  synthetic         ours: workloads learned from four logs: how like them they are, and what they give away; fits for
                    an hour what is not in runs/synthetic, less with --processes or --logs Theta --models transformer
  synthetic-training  ours: agents trained on generated jobs, judged on real ones, four logs; hours on one core, has
                    options of its own (see python -m benchmarks.reproduce synthetic-training --help)

example:
  python -m benchmarks.reproduce tsafrir --data ../shared/data"""

OPTIONS = {"foresight": ("logs",), "synthetic": ("logs", "models", "seeds", "out", "processes")}
"""What can be said of some tables alone."""


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """What was said of them."""
    found: dict[str, Any] = {}
    for name in ("logs", "models", "seeds"):
        if getattr(given, name) is not None:
            found[name] = [word.strip() for word in getattr(given, name).split(",")]
    if "seeds" in found:
        found["seeds"] = [int(seed) for seed in found["seeds"]]
    return found | {
        name: getattr(given, name) for name in ("out", "processes") if getattr(given, name) is not None
    }


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: the table was printed; 2: it could not be made."""
    words = sys.argv[1:] if words is None else list(words)
    if words and words[0] in OWN:
        return OWN[words[0]](words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description="Print other people's tables with kilowait's numbers for the same jobs beside them.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", choices=TABLES, help="which table to make again")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of real logs, with swf/ in it; else what KILOWAIT_DATA names"
    )
    parser.add_argument(
        "--oracles", metavar="DIR", help="folder of recorded results; else oracles/ beside the data"
    )
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    parser.add_argument("--logs", metavar="A,B", help="foresight and synthetic: these logs alone")
    parser.add_argument("--models", metavar="A,B", help="synthetic: these generators alone")
    parser.add_argument("--seeds", metavar="A,B", help="synthetic: of the samples")
    parser.add_argument(
        "--out", metavar="DIR", help="synthetic: folder of finished cells; else runs/synthetic"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="synthetic: cells at a time")
    given = parser.parse_args(words)
    chosen = TABLES[given.table]
    some = _options(given)
    for name in some:
        takers = [table for table, names in OPTIONS.items() if name in names]
        if given.table not in takers:
            parser.error(f"--{name} is for {' and '.join(takers)}; {given.table} has its own")
    if "out" in some:
        some["folder"] = some.pop("out")
    try:
        found = chosen.results(Sources.find(given.data, given.oracles), _say, **some)
    except KilowaitError as problem:
        _say(f"error: {' '.join(str(problem).split())}")
        return 2
    sys.stdout.write((json.dumps(found, indent=2) if given.json else chosen.text(found)) + "\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
