"""Options and plan of a comparison: scenarios, policies, windows and metric.

The module imports no NumPy: the command line takes its options from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.settings import Scenario, default_backfill
from kilowait.settings import Option
from kilowait.units import parse_duration

if TYPE_CHECKING:
    from kilowait.evaluation.comparison import PolicyConfig, Windows
    from kilowait.jobs import JobTable


@dataclass(frozen=True)
class ComparisonOptions:
    """What is compared, on which windows of the logs, and by which metric, as texts of the command line."""

    policies: Annotated[
        str,
        Option(
            "P,...",
            "Comma-separated policies: names of kilowait policies, agent:PATH for a trained agent, or "
            "rule:FILE.py:NAME for your own function.",
            "-p",
        ),
    ] = "fcfs,sjf,saf,wfp3"
    backfill: Annotated[
        str | None,
        Option(
            "B,...",
            "Comma-separated kinds of backfilling: none, easy (the default), conservative, or the number of jobs "
            "that get a reservation; on GPU clusters none (the default, unless a policy skips jobs that do not fit) or "
            "skip.",
            "-b",
        ),
    ] = None
    clusters: Annotated[
        str | None,
        Option(
            "C,...",
            "Comma-separated clusters, each as in --cluster, on which every policy is run: 1200,1440 or auto,+20%.",
        ),
    ] = None
    windows: Annotated[
        int | None,
        Option(
            "N",
            "Compare on N windows of the log instead of the whole log; gives more reliable confidence intervals "
            "and significance tests.",
            "-w",
        ),
    ] = None
    window: Annotated[str, Option("N|SPAN", "Length of a window: a number of jobs, or a span such as 7d.")] = "1024"
    warmup: Annotated[
        str,
        Option(
            "N|SPAN",
            "Jobs before a window (a number or a span) that fill the cluster and are not counted; 0: the cluster "
            "starts empty.",
        ),
    ] = "0"
    split: Annotated[
        str,
        Option(
            "train|validation|test|all|auto",
            "Part of the log to use: train is the first 60 % of the jobs, validation the next 20 %, test the last "
            "20 %; auto: test if an agent is compared, else all.",
        ),
    ] = "auto"
    seed: Annotated[int, Option("N", "Random seed of the windows and the confidence intervals.")] = 0
    metric: Annotated[
        str | None,
        Option("METRIC", "Metric to test and sort by; by default mean_bsld, on GPU clusters mean_turnaround_s."),
    ] = None
    clairvoyant: Annotated[
        bool,
        Option(
            None,
            "Also run each policy with perfect run-time estimates, to show what they would gain.",
            "--clairvoyant/--no-clairvoyant",
        ),
    ] = True
    placement: Annotated[
        str | None,
        Option(
            "P,...",
            "Comma-separated placements, as in kilowait simulate; each policy is run with each placement. By "
            "default first, or what the policy prefers.",
        ),
    ] = None
    with_user_estimates: Annotated[
        bool,
        Option(
            None,
            "With --runtime-predictor: also run each policy with the users' own estimates.",
            "--with-user-estimates/--without-user-estimates",
        ),
    ] = True
    power_controls: Annotated[
        str,
        Option(
            "L,...",
            "With --power: comma-separated sets of power controls, each joined by +: "
            "none,sleep=break-even,dvfs=1.1,all. Savings are relative to the first.",
        ),
    ] = "none"
    gpu_power_cap: Annotated[
        str | None,
        Option(
            "SHARE,...",
            "GPU clusters: comma-separated power caps as shares of the GPU's limit (TDP): none,80%,60%. Needs --power.",
        ),
    ] = None


@dataclass(frozen=True)
class WindowOptions:
    """Number, length and warm-up of windows, and the split of the log they are cut from."""

    windows: int | None = None
    """Number of windows; None: one window, the full split."""
    window_jobs: int | None = None
    """Length of a window in jobs."""
    window_s: float | None = None
    """Length of a window in seconds."""
    warmup_jobs: int = 0
    """Jobs before each window that are simulated but not evaluated."""
    warmup_s: float = 0.0
    """The same in seconds."""
    split: str = "all"
    """all, train, validation or test: 60, 20 and 20 per cent of the log, in order of time."""
    seed: int = 0

    def cut(self, jobs: JobTable) -> Windows:
        """The windows of a log."""
        from kilowait.evaluation.comparison import cut_windows, single_window, split

        within = None if self.split == "all" else split(jobs).row_range(self.split)
        if self.windows is None:
            return single_window(jobs, within=within)
        length = {"window_jobs": self.window_jobs, "window_s": self.window_s}
        warmup = {"warmup_jobs": self.warmup_jobs, "warmup_s": self.warmup_s}
        return cut_windows(jobs, self.windows, seed=self.seed, within=within, **length, **warmup)  # type: ignore[arg-type]


def parse_window_options(
    windows: int | None, length: str, warmup: str, split: str, seed: int, policies: Sequence[PolicyConfig]
) -> WindowOptions:
    """Parse window options; the split ``auto`` is test if an agent is among the policies, else all.

    >>> from kilowait.evaluation.comparison import PolicyConfig
    >>> parse_window_options(3, "7d", "100", "auto", 0, [PolicyConfig("fcfs", "easy")]).window_s
    604800.0
    """
    jobs, seconds = parse_length(length, "length of a window")
    warm_jobs, warm_s = parse_length(warmup, "warm-up")
    if split == "auto":
        split = "test" if any(config.kind == "agent" for config in policies) else "all"
    if windows is None and (warm_jobs or warm_s):
        raise InputError("a warm-up needs windows; give their number with --windows")
    return WindowOptions(windows, None if seconds else jobs, seconds or None, warm_jobs, warm_s, split, seed)


def parse_length(text: str, what: str) -> tuple[int, float]:
    """A length in jobs and seconds, one of which is 0: a plain number means jobs, a number with a unit means time.

    >>> parse_length("1024", "window"), parse_length("7d", "window")
    ((1024, 0.0), (0, 604800.0))
    """
    digits = text.strip().replace("_", "")
    if digits.lstrip("-").isdecimal():
        return int(digits), 0.0
    try:
        return 0, parse_duration(text)
    except ValueError as problem:
        raise InputError(
            f"the {what} is {text!r}; write a number of jobs such as 1024 or a duration such as 7d"
        ) from problem


def default_metric(node_level: bool) -> str:
    """The default metric: mean bounded slowdown; on GPU clusters, where speeds differ, mean turnaround time."""
    return "mean_turnaround_s" if node_level else "mean_bsld"


@dataclass(frozen=True)
class ComparisonPlan:
    """Scenarios, policies, windows and metric of a comparison."""

    scenarios: tuple[Scenario, ...]
    policies: tuple[PolicyConfig, ...]
    window_options: WindowOptions = field(default_factory=WindowOptions)
    metric: str = "mean_bsld"
    freedom: Mapping[str, Any] = field(default_factory=dict)
    """GPU settings that every priority policy gets because another contender has them (`freedom.shared_freedom`)."""

    def __post_init__(self) -> None:
        from kilowait.evaluation.metric_definitions import METRIC_DEFINITIONS
        from kilowait.experiments.power import ENERGY_METRICS, check_metric_available
        from kilowait.experiments.power_controls import check_has_power_model

        if self.metric not in METRIC_DEFINITIONS:
            raise UnknownNameError("metric", self.metric, METRIC_DEFINITIONS)
        for scenario in self.scenarios:
            for config in self.policies:
                if config.power_controls != "none":
                    check_has_power_model(config.power_controls, scenario.power)
            if self.metric in ENERGY_METRICS:
                check_metric_available(self.metric, scenario.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for scenario.toml."""
        return {
            "metric": self.metric,
            "windows": asdict(self.window_options),
            "case": [scenario.to_dict() for scenario in self.scenarios],
            "policy": [asdict(config) for config in self.policies],
            **({"freedom": dict(self.freedom)} if self.freedom else {}),
        }


def plan_from_options(
    options: ComparisonOptions, traces: Sequence[str], scenario: Callable[..., Scenario]
) -> ComparisonPlan:
    """The plan that the options of ``kilowait compare`` describe; `scenario` makes the scenario of a trace."""
    from kilowait.experiments.comparison.freedom import shared_freedom
    from kilowait.experiments.policies import make_policy_configs, parse_names, policy_and_placement, resolve_policy
    from kilowait.experiments.power_controls import power_controls_or_caps

    scenarios = tuple(scenario(trace=trace) for trace in dict.fromkeys(traces))
    if options.clusters is not None:
        scenarios = _on_clusters(scenarios, options.clusters)
    node_level = _node_level(scenarios)
    placements = [] if options.placement is None else parse_names("placements", options.placement)
    if len(placements) == 1:  # a single placement belongs to the scenario, not to the policies
        scenarios = tuple(replace(one, placement=placements[0]) for one in scenarios)
        placements = []
    controls = options.power_controls
    if options.gpu_power_cap is not None:
        controls = power_controls_or_caps(controls, options.gpu_power_cap)
    freedom: dict[str, Any] = {}
    skip = False
    if node_level:
        names = [policy_and_placement(text)[0] for text in parse_names("policies", options.policies)]
        freedom, skip = shared_freedom(map(resolve_policy, names))
    policies = make_policy_configs(
        options.policies,
        options.backfill or default_backfill(node_level, skip),
        controls,
        placements,
        clairvoyant=options.clairvoyant,
        users=options.with_user_estimates and scenarios[0].runtime_predictor is not None,
    )
    windows = parse_window_options(
        options.windows, options.window, options.warmup, options.split, options.seed, policies
    )
    return ComparisonPlan(scenarios, policies, windows, options.metric or default_metric(node_level), freedom)


def _on_clusters(scenarios: Sequence[Scenario], clusters: str) -> tuple[Scenario, ...]:
    """Each scenario on each of these clusters."""
    from kilowait.experiments.policies import parse_names

    if scenarios[0].cluster != "auto":
        raise InputError(f"--cluster {scenarios[0].cluster} and --clusters {clusters} are given; use only one of them")
    names = dict.fromkeys(parse_names("clusters", clusters))
    return tuple(replace(one, cluster=cluster) for one in scenarios for cluster in names)


def _node_level(scenarios: Sequence[Scenario]) -> bool:
    """Whether all scenarios are on GPU clusters; raises if only some are."""
    from kilowait.experiments.scenario_inputs import all_node_level

    kinds = {
        cluster: all_node_level(cluster, [one.trace for one in scenarios if one.cluster == cluster])
        for cluster in dict.fromkeys(one.cluster for one in scenarios)
    }
    if len(set(kinds.values())) > 1:
        gpu, batch = (next(name for name, found in kinds.items() if found is kind) for kind in (True, False))
        raise InputError(
            f"{gpu} is a GPU cluster and {batch} is not; policies and metrics differ: compare them separately"
        )
    return kinds[scenarios[0].cluster]
