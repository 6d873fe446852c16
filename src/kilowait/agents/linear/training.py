"""Training a `LinearAgent` by direct search: simulate, rank, move on.

A schedule is a chaotic thing: a tie broken the other way can change the slowdown of a whole window, so a search
that believes single windows learns their noise. Hence the search begins where theory says (`usual_weights`, or one of
its neighbours if that is surely better on training jobs), draws new windows for every generation, lets all candidates
schedule the same ones, pulls back towards the start, and takes not its last point but the mean of its path over its
latter half. That, or half the way there, is taken only if it is clearly better than the start both on new windows of
the training jobs and on the validation jobs, which are later. And a rule that is surely better than the start is kept,
unless what the search found clearly beats it.

A window knows of its users what jobs before it taught, and not the latest of them: an agent is used, and judged, some
time after it was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear.agent import TRUST, LinearAgent, saf_weights, usual_weights, weights_of
from kilowait.agents.linear.memory import Memory, memories, parameters_for
from kilowait.agents.linear.scoring import COUNT, compiled
from kilowait.agents.searching.course import Course, Generation, Keeping
from kilowait.agents.searching.objectives import OBJECTIVES, Objective, objective_of
from kilowait.agents.searching.search import EvolutionStrategy
from kilowait.agents.searching.windows import drawn_starts, spread_starts
from kilowait.cluster import Cluster
from kilowait.engine.ports import Rule
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.seeding import stream

__all__ = ["train"]

Floats = npt.NDArray[np.float64]

STARTS: dict[str, Callable[[], Floats]] = {
    "usual": usual_weights,
    "expected area": lambda: weights_of(length=1.0, width=1.0, usual=1.0, habit=1.0),
    "area": saf_weights,
}
"""Where a search may begin, the usual place first."""

RULES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3", "unicef")
"""Rules that are kept where they are better."""

STEP = 0.1
PULL = 0.1
"""What a squared step away from the start costs, in logarithms of the objective."""
CLEARLY = 0.98
"""What the search found must be at most this much of the start to be taken."""
SURELY = 0.95
"""What is begun with, or kept, instead of the usual must be at most this much of it."""
CUTS = 32
"""Moments of the training jobs at which it is known what was known then."""


def train(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    *,
    seed: int,
    generations: int = 40,
    population: int = 16,
    windows: int = 48,
    window_jobs: int = 1024,
    backfill: str | int = "easy",
    objective: str | Objective = "mean_bsld",
    max_wait_s: float = np.inf,
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
    keeping: Keeping | None = None,
) -> tuple[LinearAgent, list[Generation]]:
    """An agent trained on `jobs` and chosen on `validation`, which should be later jobs of the same log.

    What it is to be judged on is not handed in, and so cannot be learned from.

    Same arguments, same weights, to the bit, on any number of threads, and gone on with after a kill or not.

    Args:
        jobs: what is learned from.
        validation: later jobs, which pick among what the search found.
        cluster: the machine.
        seed: of the search and of the windows.
        generations: rounds of the search.
        population: candidates a round.
        windows: windows each candidate is tried on, the same for all of a round.
        window_jobs: jobs in each.
        backfill: as in `kilowait.simulate`.
        objective: a name of `OBJECTIVES`, or a function of a log; smaller is better.
        max_wait_s: jobs that have waited longer go first, seconds; rules are not kept then, as they know no bound.
        trace: name of the log, for the record.
        threads: simulations at a time.
        progress: hears of every generation.
        keeping: where the search is kept, and whether it goes on from there; None: nowhere.
    """
    if generations < 1 or threads < 1:
        raise InputError(f"{generations} generations on {threads} threads; there must be at least 1 of each")
    measure, measured = objective_of(objective)
    random = stream(seed, "agents.windows")
    known = _Known(jobs.sorted(), cluster, window_jobs, max_wait_s)
    length = min(window_jobs, len(validation))
    later = _Known(validation.sorted(), cluster, length, max_wait_s)
    checks = [
        later.window(first, known.at_the_end)
        for first in spread_starts(validation, max(windows, 2 * len(validation) // length), length)
    ]
    # Of an objective of one's own theory says nothing: the search goes far, and nothing pulls it back.
    step, pull = (STEP, PULL) if measured in OBJECTIVES else (4 * STEP, 0.0)
    search = EvolutionStrategy(np.zeros(COUNT), step=step, seed=seed, population=population)
    with ThreadPoolExecutor(threads) as pool:

        def tried(candidates: Sequence[Floats | str], on: Sequence[_Window]) -> Floats:
            """Values, candidate by window; gathered in order, so threads do not change a bit."""
            pairs = [(candidate, window) for candidate in candidates for window in on]
            values = pool.map(
                lambda pair: measure(simulate(pair[1].jobs, cluster, pair[1].rule(pair[0]), backfill)), pairs
            )
            return np.array(list(values)).reshape(len(candidates), len(on))

        def drawn(count: int) -> list[_Window]:
            starts = drawn_starts(jobs, count, window_jobs, random)
            return [known.lagging(first, int(random.integers(0, len(jobs) // 2 + 1))) for first in starts]

        training = drawn(2 * windows)
        identity = {
            "search": "of a score",
            "seed": seed,
            "objective": measured,
            "backfill": backfill,
            "population": population,
            "windows": windows,
            "window_jobs": window_jobs,
            "max_wait_s": None if np.isinf(max_wait_s) else max_wait_s,
        }
        course = Course(identity, generations, keeping)
        places: list[Floats | str] = [*(make() for make in STARTS.values()), *RULES]
        values = course.starts(places, lambda some: tried(some, training))
        began, start, kept = _best_start(values)
        kept = kept if np.isinf(max_wait_s) else None
        for number in course.rest(search, random):
            moves = search.ask()
            values = tried([start, *(start + moves)], drawn(windows))
            scores = [_relative(value, values[0]) for value in values[1:]]
            search.tell(moves, np.log(scores) + pull * (moves**2).sum(axis=1))
            course.path.append(search.mean)
            course.close(
                Generation(number, generations, float(np.mean(scores)), float("nan"), 1.0, search.step)
            )
            if progress is not None and number < generations:  # of the last when it has been validated
                progress(course.history[-1])
        found = np.mean(course.path[len(course.path) // 2 :], axis=0)
        ways: list[Floats] = [start, start + 0.5 * found, start + found]
        rivals: list[Floats | str] = [*ways, *([] if kept is None else [kept])]
        both = [
            [_relative(value, values[0]) for value in values]
            for values in (tried(rivals, drawn(2 * windows)), tried(rivals, checks))
        ]
        taken = _taken(both)
        if kept is not None and max(again[taken] / again[-1] for again in both) < CLEARLY:
            kept = None  # the search has come out clearly ahead of the rule after all
        history = course.history
        history[-1] = replace(history[-1], validation=both[1][2], best=both[1][taken])
        if progress is not None:
            progress(history[-1])
    provenance = {
        "trained_by": "kilowait.agents.train (CMA-ES)",
        "trace": trace,
        "trained_on_jobs": len(jobs),
        "chosen_on_jobs": len(validation),
        "nodes": cluster.nodes,
        "seed": seed,
        "objective": measured,
        "backfill": backfill,
        "generations": len(history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "began_at": began,
        "kept_rule": kept,
        "went": ("nowhere: nothing clearly better", "half the way", "all the way")[taken],
        "validation_relative_to_start": both[1][taken],
        "found": found.tolist(),
    }
    everything = _joined(jobs, validation)
    memory = memories(everything, [len(everything)])[len(everything)]
    agent = LinearAgent(ways[taken], provenance=provenance, memory=memory, kept=kept, max_wait_s=max_wait_s)
    return agent, history


def _best_start(values: Floats) -> tuple[str, Floats, str | None]:
    """Where to begin, by name and in weights, and the rule to be kept, if one is surely better than that."""
    scores = [_relative(value, values[0]) for value in values]
    first = int(np.argmin(scores[: len(STARTS)]))
    first = first if scores[first] < SURELY else 0
    rules = np.array(scores[len(STARTS) :]) / scores[first]
    kept = RULES[int(np.argmin(rules))] if rules.min() < SURELY else None
    return list(STARTS)[first], list(STARTS.values())[first](), kept


def _taken(both: Sequence[Sequence[float]]) -> int:
    """Which way to go, none (0), half (1) or all (2): the best of those clearly better on both sets of windows."""
    products = [float(np.prod([again[way] for again in both])) for way in range(3)]
    clear = [way for way in (1, 2) if max(again[way] for again in both) < CLEARLY]
    return min(clear, key=lambda way: products[way], default=0)


@dataclass(frozen=True, eq=False)
class _Window:
    """Jobs to schedule, and what is known of their users before the first of them."""

    jobs: JobTable
    parameters: Floats

    def rule(self, candidate: Floats | str) -> Rule | str:
        if isinstance(candidate, str):
            return candidate
        return Rule(
            "candidate",
            compiled(),
            np.concatenate([candidate, self.parameters[COUNT:]]),
            moving=True,
            remembers=True,
        )


class _Known:
    """A part of a log, and what was known at several moments of it."""

    def __init__(
        self, jobs: JobTable, cluster: Cluster, window_jobs: int, max_wait_s: float = np.inf
    ) -> None:
        self._jobs, self._nodes, self._length, self._bound = jobs, cluster.nodes, window_jobs, max_wait_s
        self._cuts = np.unique(np.linspace(0, len(jobs), CUTS + 1).astype(np.int64))
        self._known = memories(jobs, self._cuts.tolist())

    @property
    def at_the_end(self) -> Memory:
        """What all its jobs taught."""
        return self._known[len(self._jobs)]

    def lagging(self, first: int, lag: int) -> _Window:
        """The window from job `first` on, with what was known `lag` jobs before it, or somewhat earlier."""
        cut = self._cuts[np.searchsorted(self._cuts, max(first - lag, 0), side="right") - 1]
        return self.window(first, self._known[int(cut)])

    def window(self, first: int, memory: Memory) -> _Window:
        """The window from job `first` on."""
        jobs = self._jobs[first : first + self._length]
        return _Window(jobs, parameters_for(np.zeros(COUNT), jobs, self._nodes, memory, TRUST, self._bound))


def _relative(values: Floats, reference: Floats) -> float:
    """Value over reference: the root of the ratio of the means times the geometric mean of the windows' ratios.

    The first is what is judged, and a few busy windows decide it; the second is steadier. What is near zero counts as
    1 % of the mean reference.
    """
    floor = max(0.01 * float(reference.mean()), 1e-12)
    ratios = np.log(np.maximum(values, floor) / np.maximum(reference, floor))
    means = np.log(max(float(values.mean()), floor) / max(float(reference.mean()), floor))
    return float(np.exp(0.5 * ratios.mean() + 0.5 * means))


def _joined(first: JobTable, second: JobTable) -> JobTable:
    """Both parts of a log as one, as far as memory looks at them."""
    names = [
        name for name in ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes", "user") if name in first
    ]
    columns: dict[str, Any] = {name: np.concatenate([first[name], second[name]]) for name in names}
    return JobTable(labels={k: v for k, v in first.labels.items() if k in columns}, **columns)
