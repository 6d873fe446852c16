"""The Lublin-Feitelson workload model: rigid parallel jobs with realistic sizes, run times and arrivals.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid
jobs", JPDC 63 (11), 2003. Sampled from the published distributions, all jobs at once:

- *sizes*: one node, or a power of two, or any size; log2 of a parallel size is two-stage uniform;
- *run times*: the logarithm is one of two Gammas, short or long; large jobs are more often long;
- *arrivals*: the logarithm of the time between them is Gamma, in a model time without daily cycle. A day of model time
  is a real day, but its seconds are distributed over the real day in proportion to the arrivals of each half hour. So
  an interarrival time at night is longer in real time.

Users, estimates and the target load are additions to the model, marked below.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.log_schema import DAY_S, Floats, Ints
from kilowait.synth.lublin_parameters import JOB_KINDS_BY_MODEL, LublinParameters
from kilowait.synth.rescale import check_load, check_pace, rescale_load

LIMITS_S: tuple[float, ...] = (
    *(60.0 * minutes for minutes in (5, 10, 15, 30)),
    *(3600.0 * hours for hours in (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48)),
)
"""Common walltime requests, seconds: 5 minutes to 48 hours. Above, whole days."""


def user_estimates(runtime_s: npt.ArrayLike, *, seed: int = 0) -> Floats:
    """A request for each run time, never shorter than it.

    The used fraction of the request is uniform between 0 and 1, as logs show approximately (A. Mu'alem and D.
    Feitelson, IEEE TPDS 12 (6), 2001); the request is then rounded up to the next of `LIMITS_S`, as most requests in
    logs are a few round numbers (D. Tsafrir, Y. Etsion, D. Feitelson, JSSPP 2005), and is at most the longest of them
    if the job fits into it. Jobs are sampled independently; real users repeat their requests.

    >>> user_estimates([1.0, 3000.0, 200_000.0]).tolist()[2]
    259200.0
    """
    runtime = np.asarray(runtime_s, np.float64)
    valid = np.isfinite(runtime) & (runtime >= 0)
    if not valid.all():
        row = int(np.argmin(valid))
        raise InputError(f"row {row}: the run time is {runtime[row]} s; it must be finite, and 0 or more")
    used = 1.0 - stream(seed, "synth.estimates").random(len(runtime))  # in (0, 1]
    limits = np.array(LIMITS_S)
    needed: Floats = np.minimum(runtime / used, np.maximum(limits[-1], runtime))
    index = np.searchsorted(limits, needed, side="left")
    days = np.ceil(needed / DAY_S) * DAY_S
    request: Floats = np.where(index < len(limits), limits[np.minimum(index, len(limits) - 1)], days)
    return request


# -- the daily cycle of arrivals ------------------------------------------------------------------


BUCKETS = 48
FIRST_BUCKET = 11
"""The fitted day starts with this half hour, 5:00 to 5:30, and goes on past midnight [CYCLIC_DAY_START]."""


def gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Probability that a Gamma variable is at most `x`, by its power series (every term is positive).

    >>> round(gamma_cdf(2.0, 1.0, 2.0), 12) == round(1 - math.exp(-1), 12)
    True
    """
    if x <= 0:
        return 0.0
    x /= scale
    term = total = 1.0 / shape
    step = shape
    while term > total * 1e-17:
        step += 1.0
        term *= x / step
        total += term
    return min(1.0, total * math.exp(shape * math.log(x) - x - math.lgamma(shape)))


class DailyCycle:
    """Converts model time to real time; both start at midnight and count seconds.

    >>> cycle = DailyCycle(8.1737, 3.9631)
    >>> cycle.real_s(np.array([0.0, 86400.0, 3 * 86400.0])).tolist()
    [0.0, 86400.0, 259200.0]
    >>> hours_s = np.diff(cycle.real_s(np.arange(0.0, 86401.0, 3600.0)))  # length of each model hour in real time
    >>> bool(hours_s.max() > 2 * hours_s.min())
    True
    """

    __slots__ = ("_edges_s", "_model_s", "weights")

    weights: Floats
    """Arrivals in each half hour from midnight on, relative to the mean one."""

    def __init__(self, shape: float, scale: float) -> None:
        weights = np.empty(BUCKETS)
        for bucket in range(FIRST_BUCKET, FIRST_BUCKET + BUCKETS):
            share = gamma_cdf(bucket + 0.5, shape, scale) - gamma_cdf(bucket - 0.5, shape, scale)
            weights[(bucket - 1) % BUCKETS] = share
        if weights.sum() <= 0:  # a cycle fitted to another period: no half hour has arrivals
            weights[:] = 1.0
        weights /= weights.mean()
        self.weights = weights
        self._edges_s = np.linspace(0.0, DAY_S, BUCKETS + 1)
        self._model_s = np.concatenate(([0.0], np.cumsum(weights))) * (DAY_S / BUCKETS)
        self._model_s[-1] = DAY_S

    def real_s(self, model_s: Floats) -> Floats:
        """Real times of ascending model times."""
        days = np.floor(model_s / DAY_S) * DAY_S
        return days + np.interp(model_s - days, self._model_s, self._edges_s)


# -- the model ------------------------------------------------------------------------------------


T = TypeVar("T", np.int64, np.float64)

MAX_ROUNDS = 1000
"""Maximum number of resampling rounds for values beyond the maximum before the parameters are rejected."""

MAX_ITERATIONS = 24
"""Maximum iterations of the search for the time scale."""


def lublin(
    jobs: int,
    nodes: int,
    *,
    load: float | None = None,
    seed: int = 0,
    model: str | LublinParameters | Sequence[LublinParameters] = "combined",
    estimates: str | float = "exact",
    users: int = 64,
) -> JobTable:
    """Sample `jobs` jobs for a machine of `nodes` nodes, from midnight on.

    Args:
        jobs: number of jobs.
        nodes: the machine's size; no job is larger. The share of long jobs depends on the number of nodes as
            published, so on machines of thousands of nodes nearly all large jobs are long.
        load: offered load to reach (see `offered_load`); None keeps the rate of the model. Only the
            model time is scaled: a day has 24 hours and the same peak hours at any load.
        seed: the same seed gives the same jobs.
        model: "combined" (one kind of job), "batch", "interactive", "mixed" (both), or
            your own parameters. Kinds become queues.
        estimates: "exact", "rounded" (see `user_estimates`), or a factor of at least 1 on the run time.
        users: number of users; the k-th has a share of the jobs proportional to 1/k. Not part of the model; it
            makes fair-share policies meaningful.

    Run times are whole seconds as in the authors' program; submission times are not rounded.

    >>> workload = lublin(1000, 128, load=0.8, seed=1)
    >>> len(workload), int(workload["nodes"].max()) <= 128
    (1000, True)
    """
    jobs = whole_number("number of jobs", jobs)
    nodes = whole_number("number of nodes", nodes)
    users = whole_number("number of users", users)
    if load is not None:
        check_load(load)
        if jobs < 2:
            raise InputError("one job has no offered load; use two jobs or more, or no load")
    kinds = _kinds(model)
    kind_jobs = [_sample(kind, jobs, nodes, seed) for kind in kinds]
    scale = 1.0 if load is None else _fitted_scale(kind_jobs, jobs, nodes, load)
    submit, kind, row = _merged(kind_jobs, jobs, scale)
    runtime = _select([each.runtime_s for each in kind_jobs], kind, row)
    table = JobTable(
        job_id=np.arange(1, jobs + 1),
        submit_s=submit,
        runtime_s=runtime,
        estimate_s=_estimates(runtime, estimates, seed),
        nodes=_select([each.nodes for each in kind_jobs], kind, row),
        user=sampled_users(stream(seed, "lublin.users"), jobs, users),
        queue=kind,
        labels={"queue": tuple(each.name for each in kinds)},
        meta={"max_procs": nodes, "model": "lublin-feitelson", "seed": int(seed)},
    )
    # The scale reaches the load to 1e-7, or to within one job where jobs of different kinds change order.
    return table if load is None else rescale_load(table, nodes, load)


@dataclass(frozen=True, slots=True)
class _JobArrays:
    """The jobs of one kind, in order of arrival."""

    cycle: DailyCycle
    model_s: Floats
    """Arrivals in model time, seconds."""
    nodes: Ints
    runtime_s: Floats


def _sample(kind: LublinParameters, count: int, nodes: int, seed: int) -> _JobArrays:
    arrivals = stream(seed, f"lublin.{kind.name}.arrivals")
    shape = kind.gap_shape * kind.gap_rush_ratio
    what = f"longest_gap_log of kind {kind.name!r}"
    gaps_log = _below(lambda rows: arrivals.gamma(shape, kind.gap_scale, len(rows)), count, kind.longest_gap_log, what)
    size = _sizes(kind, count, nodes, stream(seed, f"lublin.{kind.name}.sizes"))
    runtime = _runtimes(kind, size, stream(seed, f"lublin.{kind.name}.runtimes"))
    return _JobArrays(DailyCycle(kind.cycle_shape, kind.cycle_scale), np.cumsum(np.exp(gaps_log)), size, runtime)


def _sizes(kind: LublinParameters, count: int, nodes: int, rng: np.random.Generator) -> Ints:
    """Sizes from three random numbers per job, so that a larger machine never makes a job smaller."""
    type_uniform, stage_uniform, size_uniform = rng.random((3, count))
    high = max(0.0, math.log2(nodes) - kind.size_high_gap_log2)
    low = min(kind.size_low_log2, high)
    # On small machines the breakpoint lies in the middle, as the authors advise (at 8 nodes: 1.5).
    middle = min(max(high - kind.size_middle_gap_log2, high / 2, low), high)
    lower = stage_uniform < kind.size_lower_share
    log2_size = np.where(lower, low + size_uniform * (middle - low), middle + size_uniform * (high - middle))
    power2 = type_uniform < kind.serial_share + kind.power2_share
    rounded = np.minimum(np.floor(log2_size + 0.5), nodes.bit_length() - 1)  # at most the largest that fits
    size = np.floor(np.exp2(np.where(power2, rounded, log2_size)) + 0.5)
    size[type_uniform < kind.serial_share] = 1.0
    capped: Ints = np.minimum(size, nodes).astype(np.int64)
    return capped


def _runtimes(kind: LublinParameters, size: Ints, rng: np.random.Generator) -> Floats:
    """Whole seconds, at least 1."""
    short_share = np.clip(kind.short_share_per_node * size + kind.short_share_base, 0.0, 1.0)

    def sample(rows: Ints) -> Floats:
        short = rng.random(len(rows)) < short_share[rows]
        shape = np.where(short, kind.short_shape, kind.long_shape)
        return rng.standard_gamma(shape) * np.where(short, kind.short_scale, kind.long_scale)

    what = f"longest_runtime_log of kind {kind.name!r}"
    return np.floor(np.exp(_below(sample, len(size), kind.longest_runtime_log, what)))


def _below(sample: Callable[[Ints], Floats], count: int, limit: float, what: str) -> Floats:
    """Sample `count` values by `sample` (called with rows); values above `limit` are resampled."""
    values = sample(np.arange(count))
    rows = np.flatnonzero(values > limit)
    for _ in range(MAX_ROUNDS):
        if len(rows) == 0:
            return values
        values[rows] = sample(rows)
        rows = rows[values[rows] > limit]
    raise InputError(f"{what} is {limit:g}, and nearly every sampled value is above it; raise it")


def _merged(kind_jobs: Sequence[_JobArrays], count: int, scale: float) -> tuple[Floats, Ints, Ints]:
    """The first `count` arrivals of all kinds: their times, kinds, and rows within the kind."""
    times_by_kind = [each.cycle.real_s(each.model_s * scale) for each in kind_jobs]
    if len(times_by_kind) == 1:
        return times_by_kind[0], np.zeros(count, np.int64), np.arange(count)
    times = np.concatenate(times_by_kind)
    order = np.argsort(times, kind="stable")[:count]
    kind, row = np.divmod(order, count)
    return times[order], kind, row


def _select(columns: Sequence[npt.NDArray[T]], kind: Ints, row: Ints) -> npt.NDArray[T]:
    """A column of the merged jobs from the columns of their kinds."""
    return columns[0] if len(columns) == 1 else np.stack(columns)[kind, row]


def _fitted_scale(kind_jobs: Sequence[_JobArrays], count: int, nodes: int, load: float) -> float:
    """The scale factor of model time that brings the offered load near `load`.

    Uses regula falsi (Illinois) on logarithms. The load need not be smooth in the factor:
    nights are long and, with several kinds, jobs change order; the caller corrects the rest.
    """
    work = [each.nodes * each.runtime_s for each in kind_jobs]

    def excess(scale_log: float) -> float:
        submit, kind, row = _merged(kind_jobs, count, math.exp(scale_log))
        span_s = max(float(submit[-1] - submit[0]), 1e-9)
        return math.log(float(_select(work, kind, row).sum()) / nodes / span_s) - math.log(load)

    check_pace(float(sum(each.sum() for each in work)) / len(work), nodes, load)
    near = 0.0
    near_excess = excess(near)
    far, far_excess = near, near_excess
    step = near_excess
    while near_excess * far_excess > 0 and abs(step) < 1e3:
        near, near_excess = far, far_excess
        far += step
        far_excess = excess(far)
        step *= 2
    if near_excess * far_excess > 0:
        return math.exp(near)
    for _ in range(MAX_ITERATIONS):
        if abs(far_excess) < 1e-7 or far_excess == near_excess:
            break
        new = far - far_excess * (far - near) / (far_excess - near_excess)
        new_excess = excess(new)
        if new_excess * far_excess < 0:
            near, near_excess = far, far_excess
        else:
            near_excess /= 2
        far, far_excess = new, new_excess
    return math.exp(far)


def _kinds(model: str | LublinParameters | Sequence[LublinParameters]) -> tuple[LublinParameters, ...]:
    if isinstance(model, str):
        if model not in JOB_KINDS_BY_MODEL:
            raise UnknownNameError("Lublin model", model, JOB_KINDS_BY_MODEL)
        return JOB_KINDS_BY_MODEL[model]
    kinds = (model,) if isinstance(model, LublinParameters) else tuple(model)
    names = [kind.name for kind in kinds]
    if not kinds:
        raise InputError("the model has no kind of job; give at least one")
    if len(set(names)) < len(names):
        raise InputError(f"the model's kinds of job are named {', '.join(names)}; give each a different name")
    return kinds


def _estimates(runtime: Floats, kind: str | float, seed: int) -> Floats:
    if isinstance(kind, str):
        if kind == "exact":
            return runtime
        if kind == "rounded":
            return user_estimates(runtime, seed=seed)
        raise UnknownNameError("kind of estimate", kind, ("exact", "rounded"))
    if not (math.isfinite(kind) and kind >= 1):
        raise InputError(f"estimates are {kind} times the run time; the factor must be finite, and 1 or more")
    return runtime * kind


def sampled_users(rng: np.random.Generator, count: int, users: int) -> Ints:
    """A user for each job; the k-th user has the weight 1/k."""
    weights = 1.0 / np.arange(1, users + 1)
    return rng.choice(users, count, p=weights / weights.sum())


def whole_number(what: str, value: int, *, least: int = 1) -> int:
    """The value, if it is a whole number of at least `least`.

    >>> whole_number("seed", -1, least=0)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: the seed is -1; it must be at least 0
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"the {what} is {value!r}; it must be a whole number") from None
    if number < least:
        raise InputError(f"the {what} is {number}; it must be at least {least}")
    return number
