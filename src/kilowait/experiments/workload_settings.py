"""Settings of predictions for the jobs of a log, of anonymization, and of generators of synthetic workloads.

The module imports no NumPy: the command line takes its options from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.settings import (
    Cluster,
    Columns,
    Format,
    Jobs,
    LogFormat,
    Strict,
    Trace,
    UnpackLimit,
    Utilization,
)
from kilowait.settings import Argument, Option

if TYPE_CHECKING:
    from kilowait.experiments.scenario_inputs import Workload
    from kilowait.jobs import JobTable
    from kilowait.synth import WhatIf
    from kilowait.traces.anonymize import AnonymizedLog, PseudonymKey

WrittenFormat = Annotated[
    str | None, Option("FORMAT", "Format: swf, csv, parquet or batsim; by default from the name of the --out file.")
]


@dataclass(frozen=True)
class LogSource:
    """A job log: its file, rows and format."""

    trace: Trace
    jobs: Jobs = None
    log_format: LogFormat = field(default_factory=LogFormat)

    def read(self) -> Workload:
        """Read the log."""
        from kilowait.experiments.scenario_inputs import read_workload

        return read_workload(self.trace, **vars(self.log_format), rows=self.jobs)


@dataclass(frozen=True)
class AnonymizationSettings:
    """What an anonymized log contains, and the check of its k-anonymity."""

    key: Annotated[
        Path | None,
        Option("FILE", "Secret key; the same key gives the same pseudonyms. Never publish it.", "--key-file"),
    ] = None
    new_key: Annotated[bool, Option(None, "Create the key file first: 32 random bytes, readable only by you.")] = False
    hash: Annotated[str | None, Option("C,...", "Also hash these columns: queue, qos, name, gpu_types.")] = None
    keep: Annotated[
        str | None, Option("C,...", "Keep unchanged what is hashed or dropped by default: account, header.")
    ] = None
    drop: Annotated[str | None, Option("C,...", "Drop columns, or facts such as time_zone and max_procs.")] = None
    coarsen: Annotated[
        str | None, Option("MAP", "Round values: submit_s=60s,runtime_s=10s,memory_mb=1024,nodes=pow2.")
    ] = None
    shift: Annotated[
        str | None,
        Option(
            "SPAN|random",
            "Shift all dates: by a span such as 7d, or (random) by a number of whole weeks derived from the key.",
            "--shift-dates",
        ),
    ] = None
    k: Annotated[int, Option("K", "k of k-anonymity: minimum number of users with the same quasi-identifiers.")] = 5
    quasi_identifiers: Annotated[
        str | None,
        Option(
            "C,...",
            "What an attacker may know about a job: columns, and hour, day, week, hour_of_day, weekday of its "
            "submission. Default: nodes,cores,gpus,estimate_s,queue,hour, as far as the log has them.",
        ),
    ] = None
    enforce: Annotated[bool, Option(None, "Leave out jobs in classes with fewer than k users.", "--drop-below-k")] = (
        False
    )
    fail_below_k: Annotated[
        bool, Option(None, "Write nothing and exit with 2 if any class has fewer than k users.")
    ] = False

    def apply(self, jobs: JobTable, secret: PseudonymKey, *, numbers: bool) -> AnonymizedLog:
        """The anonymized jobs; with `numbers` users and projects get numbers instead of names."""
        from kilowait.traces import anonymize

        plan = anonymize.make_plan(
            jobs,
            hashed=anonymize.parse_names(self.hash),
            keep=anonymize.parse_names(self.keep),
            drop=anonymize.parse_names(self.drop),
            coarsen=None if self.coarsen is None else anonymize.parse_coarsening(self.coarsen),
            shift=anonymize.parse_shift(self.shift),
        )
        quasi = None if self.quasi_identifiers is None else anonymize.parse_names(self.quasi_identifiers)
        return anonymize.anonymize(jobs, secret, plan, k=self.k, quasi=quasi, enforce=self.enforce, numbers=numbers)


@dataclass(frozen=True)
class GeneratorSettings:
    """A generator of synthetic workloads and its training."""

    model: Annotated[str, Option("MODEL", "Generator; see kilowait synth list.", "-m")] = "transformer"
    seed: Annotated[int, Option("N", "Random seed; the same seed gives the same generator.", min=0)] = 0
    settings: Annotated[
        str | None, Option("S=V,...", "Hyperparameters of the generator; see kilowait synth list.", "--set")
    ] = None
    keep_names: Annotated[
        bool, Option(None, "Keep IDs and names of users and accounts, in the folder and in samples.")
    ] = False
    device: Annotated[str, Option("DEVICE", "Device of the training: cpu, cuda, or auto: a GPU if there is one.")] = (
        "auto"
    )


@dataclass(frozen=True)
class SampleSettings:
    """A sample of a generator, and changes of the workload that it describes."""

    folder: Annotated[Path, Argument("DIR", "Folder written by kilowait synth fit.")]
    jobs: Annotated[int | None, Option("N", "Number of jobs.", "-n", min=1)] = None
    days: Annotated[
        float | None, Option("DAYS", "Instead of --jobs: number of days; may be more than the log has.")
    ] = None
    seed: Annotated[int, Option("N", "Random seed; the same seed gives the same jobs.", min=0)] = 0
    load: Annotated[
        float | None,
        Option("TARGET", "Offered load, up to 1.5: scales the number of jobs per day and keeps the daily pattern."),
    ] = None
    job_mix: Annotated[
        str | None,
        Option(
            "C=V*F,...",
            "Change the job mix: jobs with these values arrive F times as often, or are a given share of all jobs: "
            "nodes=1:4*0.5,64:128*2 or nodes=1=60%; columns as in --where.",
        ),
    ] = None
    scale_jobs: Annotated[
        str | None,
        Option(
            "C=V*F,...",
            "Queues, users or accounts that submit F times as many jobs: queue=long*3,user=1*2. If names were not "
            "kept, users and accounts are ranks: 1 used most node-seconds.",
        ),
    ] = None
    nodes: Annotated[
        int | None, Option("N", "Number of nodes of another cluster: job sizes are scaled to it at the same load.")
    ] = None
    where: Annotated[
        str | None,
        Option(
            "C=V,...",
            "Only jobs with these values: queue=long, nodes=1:16, hour=8:18, weekday=0/1/2; also gpus, estimate_s, "
            "runtime_s, status.",
        ),
    ] = None
    cluster: Cluster = "auto"
    allow_pickle_with: Annotated[
        str | None,
        Option(
            "PYTHON",
            "For a generator of sdv or realtabformer that you trust: unpickle it with this Python interpreter. "
            "Unpickling runs code from the folder.",
        ),
    ] = None

    @property
    def what_if(self) -> WhatIf:
        """The changes of the workload."""
        from kilowait.synth.what_if import WhatIf, parse_changes

        return WhatIf(
            self.load,
            {} if self.job_mix is None else parse_changes(self.job_mix, "job mix"),
            {} if self.scale_jobs is None else parse_changes(self.scale_jobs, "group scaling"),
            self.nodes,
        )

    @property
    def conditions(self) -> dict[str, Any] | None:
        """The values that every job must have."""
        from kilowait.synth.conditions import parse_conditions

        return None if self.where is None else dict(parse_conditions(self.where))


@dataclass(frozen=True)
class ScoreSettings:
    """The logs of synthetic and of real jobs, and how they are compared."""

    real: Annotated[str, Argument("REAL", "Log that the generator was fitted to.")]
    synthetic: Annotated[str, Argument("SYNTHETIC", "Log of synthetic jobs.")]
    held_out_log: Annotated[
        str | None, Option("FILE", "Real jobs that the generator has not seen; required for privacy measures.")
    ] = None
    jobs: Jobs = None
    policies: Annotated[
        str, Option("P,...", "Comma-separated policies to simulate both logs with, under EASY backfilling.", "-p")
    ] = "fcfs,sjf"
    cluster: Cluster = "auto"
    seed: Annotated[int, Option("N", "Random seed of the classifier.", min=0)] = 0


@dataclass(frozen=True)
class PredictionTask:
    """Settings of a prediction task: the log, the target and the sources of the data."""

    trace: Trace
    target: Annotated[
        str, Option("TARGET", "What to predict: runtime or wait (s), power (mean of all nodes, W) or energy (J).", "-t")
    ] = "runtime"
    cluster: Cluster = "auto"
    history_source: Annotated[
        str,
        Option(
            "log|simulated|auto",
            "Start and end times of earlier jobs, which decide what is known at a submission: those of the log, or of "
            "a simulation (fcfs with EASY backfilling). auto: log if it contains them.",
        ),
    ] = "auto"
    label_source: Annotated[
        str | None,
        Option(
            "measured|model|both",
            "Power and energy values to learn from: measured, those of the power model --power, or both: measured if "
            "available. Default: measured; with --power both.",
        ),
    ] = None
    """Source of power and energy labels; None: measured, or with a power model both."""
    power: Annotated[str | None, Option("MODEL", "Power model for power and energy: a preset or a TOML file.")] = None
    utilization: Utilization = None
    format: Format = None
    unpack_limit: UnpackLimit = None
    columns: Columns = None
    strict: Strict = False
    jobs: Jobs = None
    fit_jobs: int = 0
    """Number of jobs to use, the last ones by submission; 0: all."""

    def __post_init__(self) -> None:
        from kilowait.experiments.prediction.evaluation import HISTORY_SOURCES
        from kilowait.predict.targets import TARGETS

        if self.target not in TARGETS:
            raise UnknownNameError("target", self.target, TARGETS)
        if self.history_source not in HISTORY_SOURCES:
            raise UnknownNameError("history source", self.history_source, HISTORY_SOURCES)
        if self.target not in ("power", "energy") and (self.power or self.label_source):
            raise InputError(
                f"a power model and label sources are only for the targets power and energy, not {self.target}"
            )


@dataclass(frozen=True)
class PredictorFit:
    """A prediction model and its training."""

    model: Annotated[str, Option("MODEL", "Prediction model, as in kilowait predict score.", "-m")] = "forest"
    tune: Annotated[
        int,
        Option("N", "Hyperparameter settings to try on the earlier jobs; 0: the defaults.", "--tuning-trials", min=0),
    ] = 0
    fit_jobs: Annotated[
        int,
        Option(
            "N",
            "Use at most N jobs, the last ones of a longer log; 0: all jobs (about a minute and 4 GB of memory for "
            "each million).",
            min=0,
        ),
    ] = 500_000
    seed: Annotated[int, Option("N", "Random seed; the same seed gives the same result.", min=0)] = 0
    threads: Annotated[int, Option("N", "CPU threads of the models; results do not depend on it.", min=1)] = 1
