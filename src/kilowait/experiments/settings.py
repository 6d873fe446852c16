"""Settings of simulations as plain data, in the text formats of the command line.

The module imports neither NumPy nor Numba: the command line takes its options from here, and must show its help at
once.
"""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.settings import Argument, Option
from kilowait.units import parse_duration

if TYPE_CHECKING:
    from kilowait.cluster import Cluster as Machine
    from kilowait.policies.registry import AnyPolicy

BACKFILLS = ("none", "skip")
"""Backfilling on GPU clusters. none: the first job that does not fit blocks the queue; skip: later jobs are tried."""
GPU_TYPE_ORDERS = ("any", "fastest", "least-energy")
NEVER = "never"
_DURATIONS = {
    "preempt_min_runtime": "min_run_before_preempt_s",
    "preempt_grace": "grace_s",
    "checkpoint_write_time": "checkpoint_write_s",
    "checkpoint_load_time": "checkpoint_load_s",
    "checkpoint_interval": "checkpoint_s",
    "round_interval": "round_interval_s",
}
"""Options that are durations, and the fields of `GpuSettings` they set."""
WORKLOAD_SYNTAX = (
    "lublin:JOBS:NODES[:LOAD[:SEED]], gpu:JOBS:CLUSTER[:LOAD[:SEED]] or gavel:JOBS:JOBS_PER_HOUR[:SEED[:multi]]"
)


def parse_backfill(text: str) -> str | int:
    """The backfilling: none, easy, conservative, or a number of reservations; on GPU clusters none or skip.

    >>> parse_backfill("easy"), parse_backfill("3")
    ('easy', 3)
    """
    return int(text) if text.strip().lstrip("-").isdecimal() else text.strip().lower()


def check_backfill(backfill: str | int) -> None:
    """Raise unless batch or GPU clusters support this kind of backfilling."""
    if backfill not in BACKFILLS:
        Settings(backfill=backfill)


def check_placement(name: str | None) -> None:
    """Raise unless batch or GPU clusters support this placement."""
    known = ("balance", *PLACEMENTS)
    if name is not None and name not in known:
        raise UnknownNameError("placement rule", name, known)


def default_backfill(node_level: bool, skip: bool = False) -> str:
    """The default backfilling: that of `Settings`; on GPU clusters, which have no reservations, none.

    With `skip` a contender of a comparison on a GPU cluster starts jobs behind one that does not fit, so all do.
    """
    if node_level:
        return "skip" if skip else "none"
    return str(Settings.backfill)


def check_placement_on(name: str | None, cluster: Machine) -> None:
    """Raise unless this cluster supports this placement."""
    known = tuple(PLACEMENTS) if cluster.node_level else ("first", "balance")
    if name is not None and name not in known:
        raise UnknownNameError(f"placement rule on {cluster.name!r}", name, known)


# -- the log and the cluster -------------------------------------------------------------------------

Trace = Annotated[
    str,
    Argument(
        None,
        "Job log: a file (SWF, sacct -P, CSV, Parquet, ...; may be compressed), the folder of a log in several files, "
        f"or a synthetic workload: {WORKLOAD_SYNTAX}.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str,
    Option(
        "CLUSTER",
        "Cluster: a preset (see kilowait clusters), nodes:N, N (nodes, or processors if the log counts these), a TOML "
        "file, a CSV list of nodes, auto: the size that the log states, or +20%: 20 % more than that.",
        "-c",
    ),
]
CoresPerNode = Annotated[
    int | None,
    Option("N", "Cores of a node, for logs that count processors. By default as the log's header says.", min=1),
]
ExclusiveNodes = Annotated[
    bool, Option(None, "Allocate whole nodes to jobs of logs that count processors, not single cores.")
]
OptionalTrace = Annotated[
    str | None,
    Argument(
        None,
        "Job log, as in kilowait simulate. Optional if --cluster is a GPU cluster: a synthetic workload is generated "
        "for it.",
        show_default=False,
    ),
]
BackfillDepth = Annotated[
    str | int,
    Option(
        "MODE",
        "Backfilling: none, easy, conservative, or the number of jobs that get a reservation.",
        "-b",
        parse=parse_backfill,
        text=str,
    ),
]
TestFraction = Annotated[
    float,
    Option(
        "FRACTION", "Share of the jobs, taken from the end of the log, used for testing; 0.3: 30 %.", min=0.01, max=1.0
    ),
]
Window = Annotated[int, Option("N", "Length of a window: a number of jobs.", min=1)]
Jobs = Annotated[str | None, Option("N|A:B", "Use only the first N jobs, or jobs A to B - 1.")]
Columns = Annotated[
    str | None, Option("MAP", "Columns of a CSV or Parquet file: submit_s=submitted,estimate_s=limit_min*60.")
]
Format = Annotated[
    str | None,
    Option(
        "FORMAT",
        "Format of the log: swf, sacct, events, csv, parquet, pm100, fdata, oda, wta, opendc; for GPU clusters openb, "
        "pai, spot, philly, helios, supercloud, kueue, google2011, google2019. Detected from the content by default.",
    ),
]
UnpackLimit = Annotated[
    str | None,
    Option("SIZE", "Largest size of the decompressed log, e.g. 64G. By default a quarter of the machine's memory."),
]
Strict = Annotated[bool, Option(None, "Fail if a row of the log must be dropped or corrected.")]
Cooling = Annotated[
    str | None,
    Option(
        "COOLING",
        "Cooling model to use instead of that of the power model: pue:X (constant PUE, e.g. pue:1.2), supply-air, "
        "linear-cop, chiller or economiser.",
    ),
]
Utilization = Annotated[
    str | None,
    Option(
        "FRACTION", "Utilization of jobs whose log has none: cpu=0.8,gpu=0.5; or names of columns. Default: full load."
    ),
]

CarbonScope = Annotated[
    Literal["life-cycle", "direct"], Option("life-cycle|direct", "Which emissions to count, if the data contain both.")
]
LogStart = Annotated[str | None, Option("DATE", "Date of the first submission (UTC), for logs without dates.")]
OnOversized = Annotated[
    str,
    Option(
        "error|drop",
        "Jobs larger than the cluster: fail (error), or leave them out and count them (drop).",
        "--oversized",
    ),
]
Load = Annotated[float | None, Option("TARGET", "Scale the times between arrivals to this offered load, e.g. 0.9.")]


@dataclass(frozen=True)
class LogFormat:
    """How a job log is read."""

    columns: Columns = None
    format: Format = None
    unpack_limit: UnpackLimit = None
    strict: Strict = False


# -- simulations -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuOptions:
    """Options for GPU clusters; None: the default of the policy. Times are written with units: 5m, 90s."""

    gpu_type_order: Annotated[
        str | None, Option("any|fastest|least-energy", "GPU clusters: GPU types that a job tries first.")
    ] = None
    preempt: Annotated[
        bool | None,
        Option(
            None,
            "GPU clusters: whether jobs of higher priority preempt running jobs. By default the policy decides.",
            "--preempt/--no-preempt",
        ),
    ] = None
    migrate: Annotated[
        bool | None,
        Option(
            None,
            "GPU clusters: whether running jobs migrate to GPUs where they finish sooner.",
            "--migrate/--no-migrate",
        ),
    ] = None
    checkpoint_interval: Annotated[
        str | None,
        Option(
            "SPAN",
            "GPU clusters: work between checkpoints, e.g. 30m; 0: a checkpoint is written at each preemption; never: "
            "no checkpoints.",
        ),
    ] = None
    checkpoint_load_time: Annotated[str | None, Option("SPAN", "GPU clusters: time to load a checkpoint.")] = None
    checkpoint_write_time: Annotated[
        str | None, Option("SPAN", "GPU clusters: time to write a checkpoint at a preemption.")
    ] = None
    preempt_grace: Annotated[
        str | None, Option("SPAN", "GPU clusters: grace period in which a preempted job continues to run.")
    ] = None
    preempt_min_runtime: Annotated[
        str | None, Option("SPAN", "GPU clusters: minimum run time of a job before it can be preempted.")
    ] = None
    round_interval: Annotated[
        str | None, Option("SPAN", "GPU clusters: schedule only at these intervals, e.g. 6m; 0: at every event.")
    ] = None
    gpu_speeds: Annotated[
        str,
        Option(
            "SPEEDS",
            "GPU clusters: speed of a job on each GPU type: auto (measured if known, else roofline, else 1), "
            "roofline, none (all 1), or a file of throughputs in Gavel's format.",
        ),
    ] = GpuSettings.gpu_speeds

    def __post_init__(self) -> None:
        if self.gpu_type_order is not None and self.gpu_type_order not in GPU_TYPE_ORDERS:
            raise UnknownNameError("order of GPU types", self.gpu_type_order, GPU_TYPE_ORDERS)
        for name in _DURATIONS:
            self._seconds(name)

    def _seconds(self, name: str) -> float | None:
        text = getattr(self, name)
        if text is None:
            return None
        if name == "checkpoint_interval" and text.strip().lower() == NEVER:
            return math.inf
        try:
            return parse_duration(text)
        except InputError as problem:
            raise InputError(f"--{name.replace('_', '-')}: {problem}") from None

    @property
    def changed_options(self) -> list[str]:
        """The names of options that differ from their defaults."""
        defaults = asdict(GpuOptions())
        return [name for name, value in asdict(self).items() if value != defaults[name]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without options that have no value."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_settings(
        self, policy: AnyPolicy, backfill: str | int, placement: str | None, **engine_settings: Any
    ) -> GpuSettings:
        """The default settings of the policy, changed by these options.

        >>> GpuOptions(checkpoint_interval="1h", preempt=False).to_settings("las", "skip", "fgd").checkpoint_s
        3600.0
        """
        from kilowait.policies.simulation import gpu_settings_for

        settings: dict[str, Any] = {"gpu_speeds": self.gpu_speeds, **engine_settings}
        if placement is not None:
            settings["placement"] = placement
        for name, field_name in _DURATIONS.items():
            seconds = self._seconds(name)
            if seconds is not None:
                settings[field_name] = seconds
        if self.round_interval is not None:
            settings["rounds"] = settings["round_interval_s"] > 0
        if self.preempt is not None:
            settings["preempt"] = self.preempt
        if self.migrate is not None:
            settings["migrate"] = self.migrate
        if self.gpu_type_order is not None:
            settings["gpu_type_order"] = "given" if self.gpu_type_order == "least-energy" else self.gpu_type_order
        return gpu_settings_for(policy, backfill, **settings)


@dataclass(frozen=True)
class PowerSettings:
    """Power model, signals and cooling."""

    power: Annotated[
        str,
        Option(
            "MODEL",
            "Account for energy with this power model: a preset (polaris, mira, theta, ...), a TOML file, or auto: the "
            "model of the cluster.",
            default=None,
        ),
    ] = "auto"
    carbon: Annotated[str | None, Option("FILE", "Carbon intensity over time, CSV or JSON; adds CO2 emissions.")] = None
    price: Annotated[str | None, Option("FILE", "Electricity price over time, CSV; adds the cost.")] = None
    weather: Annotated[
        str | None,
        Option(
            "FILE",
            "Weather over time, Open-Meteo JSON or EPW; required by the cooling models linear-cop, chiller and "
            "economiser.",
        ),
    ] = None
    carbon_scope: CarbonScope = "life-cycle"
    cooling: Cooling = None
    utilization: Utilization = None
    forecast: Annotated[
        str,
        Option(
            "FORECAST",
            "Forecast used by load shifting: perfect, persistence, or noisy:GRID with the errors measured for a grid.",
        ),
    ] = "perfect"
    log_start: LogStart = None
    repeat_signals: Annotated[
        bool, Option(None, "Repeat carbon intensity and other signals by whole weeks if they are shorter than the log.")
    ] = False

    def __post_init__(self) -> None:
        if self.carbon_scope not in ("life-cycle", "direct"):
            raise InputError(f"the carbon scope is {self.carbon_scope!r}; it must be life-cycle or direct")

    @classmethod
    def from_options(cls, power: str | None = None, **others: Any) -> PowerSettings | None:
        """The settings of a command line; None without a power model, and then no other setting may be given."""
        settings = cls(power="auto" if power is None else power, **others)
        if power is not None:
            return settings
        defaults = asdict(cls())
        extra = [key for key, value in asdict(settings).items() if value != defaults[key]]
        if extra:
            raise InputError(
                f"--{extra[0].replace('_', '-')} needs a power model; name one with --power, or --power auto"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without settings that have no value."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Scenario:
    """Settings of one simulation; `kilowait.simulate` documents them, `scenario_inputs` their text formats."""

    trace: Trace
    cluster: Cluster = "auto"
    cores_per_node: CoresPerNode = None
    exclusive_nodes: ExclusiveNodes = False
    policy: Annotated[
        str,
        Option(
            "POLICY",
            "Policy that orders the wait queue: a name of kilowait policies, agent:PATH for a trained agent, or "
            "rule:FILE.py:NAME for your own function.",
            "-p",
        ),
    ] = "fcfs"
    backfill: Annotated[
        str | int | None,
        Option(
            "MODE",
            "Backfilling: none, easy (the default), conservative, or the number of jobs that get a reservation; on GPU "
            "clusters none (the default) or skip.",
            "-b",
            parse=parse_backfill,
        ),
    ] = None
    """None: easy; on GPU clusters none."""
    backfill_order: Annotated[
        str | None,
        Option("POLICY", "Policy that orders backfill candidates, e.g. sjf. By default the policy of the queue."),
    ] = None
    at_limit: Annotated[
        str,
        Option(
            "extend|kill",
            "Jobs that run longer than their walltime limit: let them finish (extend) or end them there (kill).",
        ),
    ] = Settings.at_limit
    overrun: Annotated[
        str | None,
        Option(
            "double|steps|quantile",
            "Expected run time of a job that runs longer than its estimate: double the estimate, again and again; add "
            "steps of 1, 5, 15, ... minutes; or the predicted upper quantile (column overrun_planned_s). By default "
            "double, or what the policy prefers.",
        ),
    ] = None
    """None: the default of the policy, else quantile with the forest predictor, else double."""
    schedule_per: Annotated[
        str, Option("instant|event", "Run one scheduling pass per instant, or one after every single event.")
    ] = Settings.schedule_per
    max_wait: Annotated[
        str | None,
        Option(
            "SPAN",
            "A job that has waited longer, e.g. 12h or 3d, goes before all others under any priority policy. By "
            "default there is no such bound.",
        ),
    ] = None
    placement: Annotated[
        str | None,
        Option(
            "RULE",
            "Where a job is placed. Clusters of whole nodes: first (first node group that fits) or balance (the "
            "emptiest group). GPU clusters: first, best, worst, consolidate, random, dot-product, gpu-packing, "
            "gpu-clustering, fgd, capacity; see kilowait clusters --gpus. By default first, or what the policy "
            "prefers.",
        ),
    ] = None
    """None: first; on GPU clusters the default of the policy."""
    on_oversized: OnOversized = Settings.on_oversized
    dependencies: Annotated[
        bool,
        Option(
            None,
            "Submit every job at its logged time, even if it depends on another.",
            name="ignore_dependencies",
            parse=operator.not_,
            text=operator.not_,
        ),
    ] = Settings.dependencies
    load: Load = None
    """Offered load that arrivals are scaled to; None: not scaled."""
    jobs: Jobs = None
    """Rows of the trace; None: all."""
    format: Format = None
    unpack_limit: UnpackLimit = None
    columns: Columns = None
    strict: Strict = False
    runtime_predictor: Annotated[
        str | None,
        Option(
            "MODEL",
            "Predict run times: forest (refitted weekly on completed jobs; needs kilowait[predict]), last2, or a "
            "folder written by kilowait predict fit. Policies order jobs by the prediction and reservations use a safe "
            "upper bound; jobs are still killed only at the user's limit.",
        ),
    ] = None
    """Run-time predictor: a name of `predict_runtimes.PREDICTORS` or a saved predictor; None: user estimates."""
    power_predictor: Annotated[
        str | None,
        Option(
            "MODEL",
            "With --power: predicted power of jobs, used by power controls before a job has run: a model of kilowait "
            "predict score (forest, recent, boosting:mean, forest:quantile:0.9, ...), a folder written by kilowait "
            "predict fit --target power, or model: the power model's own value. Energy accounting always uses measured "
            "power. By default power controls do too.",
        ),
    ] = None
    """Power predictor (see `predicted_power`) for power controls; None: they use the measured power."""
    power: PowerSettings | None = None
    """Power model and signals of energy accounting; None: no energy accounting."""
    power_controls: Annotated[
        str,
        Option(
            "CONTROLS",
            "With --power: power controls, joined by +: sleep=break-even (node sleep), dvfs=1.1 (DVFS with at most "
            "10 % longer run times), shift=carbon_time:6h (load shifting), budget=80% (power budget); or none; or "
            "all.",
        ),
    ] = "none"
    """Power controls: see `kilowait.energy.controls`, and `gpu_power_cap` for GPU clusters."""
    gpu: GpuOptions = field(default_factory=GpuOptions)
    """Placement, preemption and migration on GPU clusters."""

    def __post_init__(self) -> None:
        if self.backfill is not None:
            check_backfill(self.backfill)
        check_placement(self.placement)
        Settings(
            at_limit=self.at_limit,
            overrun=self.overrun or Settings.overrun,
            schedule_per=self.schedule_per,
            dependencies=self.dependencies,
            on_oversized=self.on_oversized,
            max_wait_s=Settings.max_wait_s if self.max_wait_s is None else self.max_wait_s,
        )
        if self.runtime_predictor is not None:
            from kilowait.experiments.predictors import check_predictor

            check_predictor(self.runtime_predictor)
        if self.power_predictor is not None:
            from kilowait.experiments.predictors import check_power_predictor

            if self.power is None:
                raise InputError("--power-predictor has no effect without a power model; name one with --power")
            check_power_predictor(self.power_predictor)
        if self.power_controls.strip() != "none":
            from kilowait.experiments.power_controls import check_has_power_model, check_power_controls

            check_power_controls(self.power_controls)
            check_has_power_model(self.power_controls, self.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without settings that have no value."""
        plain = {key: value for key, value in asdict(self).items() if value is not None and key != "gpu"}
        if self.power is not None:
            plain["power"] = self.power.to_dict()
        if self.gpu.changed_options:
            plain["gpu"] = self.gpu.to_dict()
        return plain

    @property
    def max_wait_s(self) -> float | None:
        """`max_wait` in seconds."""
        try:
            return None if self.max_wait is None else parse_duration(self.max_wait)
        except InputError as problem:
            raise InputError(f"--max-wait: {problem}") from None

    @property
    def settings_dict(self) -> dict[str, Any]:
        """Engine settings except policy and backfill, as plain data."""
        return {
            "backfill_order": self.backfill_order,
            "at_limit": self.at_limit,
            "overrun": self.overrun,
            "schedule_per": self.schedule_per,
            "max_wait_s": self.max_wait_s,
            "placement": self.placement,
            "dependencies": self.dependencies,
            "on_oversized": self.on_oversized,
            "gpu": self.gpu.to_dict(),
        }

    @property
    def simulation_settings(self) -> dict[str, Any]:
        """The engine settings with `backfill_order` as a policy object, for `gpu_settings.simulate_arguments`."""
        from kilowait.experiments.policies import resolve_policy

        order = None if self.backfill_order is None else resolve_policy(self.backfill_order)
        return {**self.settings_dict, "backfill_order": order, "gpu": self.gpu}
