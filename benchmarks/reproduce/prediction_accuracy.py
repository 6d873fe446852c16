"""Accuracy of predicted run times, waits, power and energy of jobs, predicted from the data known at submission.

Models are refitted every week on the latest 12,000 jobs with a known value (walk-forward) and predict the next week.
The test set is the last 30 % of the jobs of each log, on which no setting was chosen. Starts and ends are those in the
log; jobs without a recorded wait are left out (one of HPC2N). 95 % intervals come from a bootstrap over weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait.cluster import Cluster
from kilowait.errors import UnknownNameError
from kilowait.experiments.prediction.evaluation import evaluate_predictors, history_of
from kilowait.predict.dataset import make_dataset
from kilowait.predict.models import DEFAULT_MODELS, PredictionModel
from kilowait.predict.targets import target_of
from kilowait.predict.walk_forward import Refit
from kilowait.traces import read_trace

__all__ = ["LOGS", "Log", "evaluated", "results", "text"]


class Log(NamedTuple):
    """A log, its size, and the prediction targets."""

    file: str
    nodes: int
    """Nodes, or processors where the log counts those."""
    targets: tuple[str, ...] = ("runtime",)


LOGS = {
    "KTH-SP2": Log("swf/KTH-SP2-1996-2.1-cln.swf.gz", 100, ("runtime", "wait")),
    "SDSC-SP2": Log("swf/SDSC-SP2-1998-4.2-cln.swf.gz", 128, ("runtime", "wait")),
    "SDSC-BLUE": Log("swf/SDSC-BLUE-2000-4.2-cln.swf.gz", 1152),
    "HPC2N": Log("swf/HPC2N-2002-2.2-cln.swf.gz", 240),
    "Theta": Log("alcf/rlhpc_theta_2023_feb_dec.swf.gz", 4360),
    "Kabre": Log("slurm/kabre_sacct_2024.psv.gz", 18, ("energy", "power", "wait")),
}
"""Kabré's size is unknown: the size of its largest job is used."""
MIN_W = 10.0
"""Minimum plausible power per node; below it, the run time of Kabré's job in the file is wrong."""
COMPARED = ("boosting:mean", "boosting:median", "forest:accurate", "forest:median")
"""Models that are compared with the best simple predictor."""


def results(sources: Sources, say: Callable[[str], None], logs: Sequence[str] | None = None) -> dict[str, Any]:
    """All results, of all or some logs."""
    for name in logs or ():
        if name not in LOGS:
            raise UnknownNameError("log", name, LOGS)
    return {
        f"{name}, {target}": evaluated(sources, say, name, target, DEFAULT_MODELS[target])
        for name in logs or LOGS
        for target in LOGS[name].targets
    }


def evaluated(
    sources: Sources, say: Callable[[str], None], name: str, target: str, models: Sequence[str]
) -> dict[str, Any]:
    """The results of all models on one log."""
    log = LOGS[name]
    jobs = read_trace(sources.file(log.file, "see docs/formats.md")).sorted()
    jobs, times, notes = history_of(jobs, Cluster.from_nodes(log.nodes))
    target_values = target_of(target, jobs, times, **({"min_w": MIN_W} if target == "power" else {}))
    say(f"{name}, {target}, {len(jobs):,} jobs: {'; '.join((times.name, *notes))}")

    def report_refit(model: PredictionModel, refit: Refit) -> None:
        if refit.number == refit.total:
            say(f"  {model.text}: fitted {refit.total} times")

    dataset = make_dataset(jobs, times, log.nodes, target_values)
    return evaluate_predictors(
        dataset, [PredictionModel.of(model) for model in models], progress=report_refit
    ).to_dict()


def text(output: dict[str, Any]) -> str:
    """A table for each log and target, then the ratios to the best simple predictor, then the coverage of quantiles."""
    parts = [_table(name, log_result) for name, log_result in output.items()]
    rows = []
    for name, log_result in output.items():
        for row in log_result["rows"]:
            if row["model"] in COMPARED:
                cells = [f"{ratio:.3f} ({_ends(ends, 3)})" for ratio, ends in row["ratio"].values()]
                rows.append([f"{name}, {row['model']}", *cells])
    heads = ["over the best simple one's", "accuracy", "log-RMSE"]
    parts.append(
        "Above 1 is better in accuracy, below 1 in log-RMSE; the best simple prediction is chosen for each log and "
        f"measure:\n\n{table(heads, rows)}"
    )
    coverage_rows = [
        [
            name,
            *(
                f"{100 * with_truth:.1f} % ({100 * with_requests:.1f} %)"
                for with_truth, with_requests in log_result["coverage"].values()
            ),
        ]
        for name, log_result in output.items()
    ]
    levels = [f"{100 * float(level):g} %" for level in next(iter(output.values()))["coverage"]]
    parts.append(
        "Jobs within the forest's calibrated quantiles (where one that ran past its request counts as the request):\n\n"
        f"{table(['', *levels], coverage_rows)}"
    )
    return "\n\n".join(parts)


def _table(name: str, log_result: dict[str, Any]) -> str:
    rows = []
    for row in log_result["rows"]:
        scores, ends = row["scores"], row["intervals"]
        rows.append(
            [
                row["model"],
                f"{scores['accuracy']:.3f}",
                _ends(ends["accuracy"], 3),
                f"{scores['log_rmse']:.2f}",
                _ends(ends["log_rmse"], 2),
                f"{scores['mae']:,.0f}",
                _ends(ends["mae"], 0),
                f"{100 * scores['underprediction_rate']:.1f} %",
                _ends((100 * end for end in ends["underprediction_rate"]), 1),
                f"{row['seconds']:.0f}",
            ]
        )
    heads = ["", "accuracy", "95 %", "log-RMSE", "95 %", f"MAE {log_result['unit']}", "95 %", "under", "95 %", "s"]
    counts = f"{log_result['evaluated_jobs']:,} of {log_result['jobs']:,} jobs, {log_result['weeks']} weeks"
    labels = "" if log_result["target"] == "runtime" else f"\n{log_result['labels']}"
    return f"{name}, {log_result['history']}: {counts}{labels}\n\n{table(heads, rows)}"


def _ends(ends: Iterable[float], digits: int) -> str:
    return " to ".join(f"{end:,.{digits}f}" for end in ends)
