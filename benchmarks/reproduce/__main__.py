"""Command line of the reproduction tables."""

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
    "simulator-speed": simulator_speed,
    "lets-wait-awhile": lets_wait_awhile,
    "gaia": gaia,
    "openb": openb,
    "gavel": gavel,
    "batch-learning": batch_learning,
    "power-learning": power_learning,
    "gpu-learning": gpu_learning,
    "prediction-accuracy": prediction_accuracy,
    "power-budget": power_budget,
    "synthetic-fidelity": synthetic_fidelity,
    "synthetic-training": synthetic_training,
}
OWN_COMMAND_LINE = {"synthetic-training": synthetic_training.main}
"""Tables with their own command line."""

HELP = """\
tables:
  rlscheduler       RLScheduler (SC'20) on lublin_256: start times of its policies reproduced, kilowait on its windows
  tsafrir           EASY, EASY-SJBF and perfect estimates on KTH-SP2, SDSC-SP2, SDSC-BLUE (TPDS'07)
  simulator-speed   speed of other simulators and of kilowait, and agreement of start times
  lets-wait-awhile  carbon-aware load shifting, Scenario II (Middleware'21): emissions avoided in three countries
  gaia              GAIA's waiting policies (ASPLOS'24) on its 1,000 jobs and the GB series, if its job list exists
  openb             FGD (ATC'23) on Alibaba's openb cluster: GPU allocation under six placement scores, and one of ours
  gavel             Gavel (OSDI'20): completion times on three types of GPU under five policies
  batch-learning    ours: CMA-ES, PPO, D3QN, SAC and look-ahead against nine priority policies on six logs;
                    trains missing agents for hours (runs/learning; see python -m benchmarks.reproduce.batch_learning)
  power-learning    ours: a learned power-control policy against hand-tuned power controls, on three ALCF logs
  gpu-learning      ours: D3QN, SAC, PPO and CMA-ES against priority policies on a mixed GPU cluster, three loads;
                    trains missing agents for hours (runs/gpu-learning; see python -m benchmarks.reproduce.gpu_learning)
  prediction-accuracy  ours: predicted run times, waits and energy on six logs, simple predictors and trees; minutes,
                    less with --logs KTH-SP2
  power-budget      ours: power-budget scheduling with predicted power, on Kabré's measured energy; two minutes
  synthetic-fidelity   ours: generators fitted to four logs: fidelity and privacy; fits missing models for an hour
                    (runs/synthetic), less with --processes or --logs Theta --models transformer
  synthetic-training   ours: agents trained on synthetic jobs, evaluated on real ones, four logs; hours on one core, has
                    its own options (see python -m benchmarks.reproduce synthetic-training --help)

example:
  python -m benchmarks.reproduce tsafrir --data ../shared/data"""

OPTIONS = {"prediction-accuracy": ("logs",), "synthetic-fidelity": ("logs", "models", "seeds", "out", "processes")}
"""Options that only some tables accept."""


def _options(options: argparse.Namespace) -> dict[str, Any]:
    """The table-specific options that were given."""
    results: dict[str, Any] = {}
    for name in ("logs", "models", "seeds"):
        if getattr(options, name) is not None:
            results[name] = [word.strip() for word in getattr(options, name).split(",")]
    if "seeds" in results:
        results["seeds"] = [int(seed) for seed in results["seeds"]]
    return results | {
        name: getattr(options, name) for name in ("out", "processes") if getattr(options, name) is not None
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table. Exit code 0: printed; 2: an error occurred."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and arguments[0] in OWN_COMMAND_LINE:
        return OWN_COMMAND_LINE[arguments[0]](arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description="Reproduce published result tables with kilowait on the same jobs, and print kilowait's own.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", choices=TABLES, help="the table to reproduce")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of real logs, which contains swf/ (default: KILOWAIT_DATA)"
    )
    parser.add_argument(
        "--oracles", metavar="DIR", help="folder of recorded results (default: oracles/ beside the data)"
    )
    parser.add_argument("--json", action="store_true", help="all numbers as JSON instead of tables")
    parser.add_argument("--logs", metavar="A,B", help="prediction-accuracy, synthetic-fidelity: only these logs")
    parser.add_argument("--models", metavar="A,B", help="synthetic-fidelity: only these generators")
    parser.add_argument("--seeds", metavar="A,B", help="synthetic-fidelity: seeds of the samples")
    parser.add_argument(
        "--out", metavar="DIR", help="synthetic-fidelity: folder of finished cells (default: runs/synthetic)"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="synthetic-fidelity: parallel processes")
    options = parser.parse_args(arguments)
    module = TABLES[options.table]
    table_options = _options(options)
    for name in table_options:
        accepting = [table for table, names in OPTIONS.items() if name in names]
        if options.table not in accepting:
            parser.error(f"--{name} is only for {' and '.join(accepting)}, not for {options.table}")
    if "out" in table_options:
        table_options["folder"] = table_options.pop("out")
    try:
        results = module.results(Sources.find(options.data, options.oracles), _print_progress, **table_options)
    except KilowaitError as error:
        _print_progress(f"error: {' '.join(str(error).split())}")
        return 2
    sys.stdout.write((json.dumps(results, indent=2) if options.json else module.text(results)) + "\n")
    return 0


def _print_progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
