"""Transformer generator: submission sessions come from the log's calendar, the jobs of each user are generated in
sequence.

`tokenizer` encodes columns as codes, `calendar` describes a log as users' weeks and sessions; `network` is the model,
`train` its training, `sample` the sampling of its codes, and `submit_times` orders weeks, places their
submissions in time and selects among samples of a week.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays
from kilowait.rng import stream
from kilowait.synth.generator import Generator, State, check_settings, setting
from kilowait.synth.log_schema import DAY_S, WEEK_S, Columns, Floats, Ints, prefixed
from kilowait.synth.sampler import SamplePart, SampleProgress
from kilowait.synth.trainer import Training, check_torch, device_of, network_weights, one_thread, restored_network
from kilowait.synth.transformer.calendar import CONDITION_SIZES, Calendar, by_user, calendar_of
from kilowait.synth.transformer.submit_times import (
    JITTER_S,
    DayRange,
    WeekPiece,
    sampled_weeks,
    select_draws,
    submission_times,
)
from kilowait.synth.transformer.tokenizer import (
    COPIED,
    MAX_CODES,
    RuntimeTokenizer,
    Tokenizer,
    column_values,
    fit_column_tokenizer,
    fit_runtime_tokenizer,
)

if TYPE_CHECKING:
    from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork

__all__ = ["TransformerGenerator", "TransformerSettings"]


@dataclass(frozen=True)
class TransformerSettings:
    """Hyperparameters of the transformer generator."""

    passes: float | None = setting(None, above=0)
    """Passes (epochs) over the log; None: about 1.2 million jobs in total, but 4 to 40 passes."""
    width: int | None = setting(None, least=8, most=4096)
    """Width of the network, a multiple of 8; None: 64, or 16 for a private fit, as noise dominates a large network."""
    layers: int | None = setting(None, least=1, most=100)
    """Number of layers; None: 2, or 1 for a private fit."""
    frequent_jobs: int = setting(6, least=1, most=1000)
    """Frequent job shapes stored per user and week. Fewer copy less of the log, and match its weeks less closely."""
    session_s: float = setting(1800.0, least=1.0)
    """The maximum time between jobs of a session, seconds."""
    draws: int = setting(4, least=1, most=1000)
    """Samples of each user's week, of which one is selected to match the work of the log; 1: no selection."""
    dp_epsilon: float | None = None
    """Epsilon of user-level differential privacy of the folder; None: no guarantee. With it, passes, frequent_jobs and
    draws have no effect."""
    dp_delta: float = 1e-5
    """Delta of the guarantee; it should be well below 1 / users."""
    dp_steps: int = setting(300, least=1)
    """Number of steps of a private training. More steps need more noise per step."""
    dp_rate: float = 0.1
    """Probability that a user is sampled in a step."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.width is not None and self.width % 8:
            raise InputError(f"width is {self.width}; it must be a multiple of 8")
        if not 0 < self.dp_rate <= 1:
            raise InputError(f"dp_rate is {self.dp_rate}; it must be above 0 and at most 1")

    @property
    def private(self) -> bool:
        """Whether the fit is differentially private."""
        return self.dp_epsilon is not None


# -- generator ------------------------------------------------------------------------------------


DEFAULT_SIZE, PRIVATE_SIZE = (64, 2), (16, 1)
"""Default width and number of layers."""
GROUP_JOBS = 50_000
"""Jobs sampled at a time. A change alters the jobs of a seed."""


class TransformerGenerator(Generator):
    """Generator of a submission calendar and a network."""

    name = "transformer"
    settings_type = TransformerSettings
    personal_data = (
        "submission times of each user, to about a quarter of an hour, and the most frequent job shapes of each user's "
        "week or busy hours, with their run times, under new numbers; values of rare sizes and requests; somebody who "
        "knows a user's weeks can recognize them"
    )
    _calendar: Calendar
    _codes: dict[str, Tokenizer]
    """Tokenizers of all columns but the run time, in generation order."""
    _runs: RuntimeTokenizer
    _network: TransformerNetwork

    # -- training ----------------------------------------------------------------------------------

    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        check_torch()
        from kilowait.synth.transformer.train import train

        settings = self.settings
        if settings.private:
            self._learn_private(rows, progress)
            return
        progress("coding", 0.0)
        values = column_values(rows, settings.session_s, exact=self.schema.exact_requests)
        request, runtime = values["estimate_s"], values["runtime_s"]
        self._codes = {
            name: fit_column_tokenizer(name, column) for name, column in values.items() if name != "runtime_s"
        }
        self._runs = fit_runtime_tokenizer(runtime, request, atoms=64, bins=160)
        codes = self._encoded(values)
        shape = self._shape(users=int(by_user(rows)[1].max()) + 1)
        self._calendar = calendar_of(
            rows,
            codes,
            shape.copied,
            shape.sizes,
            zero_s=self.schema.zero_s,
            session_s=settings.session_s,
            frequent_jobs=settings.frequent_jobs,
        )
        passes = settings.passes or min(40.0, max(4.0, 1.2e6 / len(codes)))
        training = Training(self.seed, device_of(self.device), progress, self.checkpoints)
        self._network = train(self._calendar, codes, shape, training, passes=passes)

    def _learn_private(self, rows: Columns, progress: SampleProgress) -> None:
        from kilowait.synth.dp import PublicLog, private_fit
        from kilowait.synth.dp.public_codes import public_runtime_tokenizer, public_tokenizer, to_public_values
        from kilowait.synth.dp.train import PrivacyBudget

        settings, schema = self.settings, self.schema
        if any(name in schema.seen for name in schema.numbered):
            raise InputError("dp_epsilon protects users, and keep_names keeps their names; use only one of them")
        budget = PrivacyBudget(settings.dp_epsilon, settings.dp_delta, settings.dp_steps, settings.dp_rate)
        public_rows = to_public_values(rows, schema)
        values = column_values(public_rows, settings.session_s, exact=False)
        self._codes = {
            name: public_tokenizer(name, schema, settings.session_s) for name in values if name != "runtime_s"
        }
        self._runs = public_runtime_tokenizer(requests=not schema.exact_requests)
        bins = {"gap_s": self._codes["gap_s"].size, "runtime_s": self._runs.below.size}
        log = PublicLog(
            public_rows,
            self._encoded(values),
            schema,
            settings.session_s,
            {self._order.index(name): count for name, count in bins.items()},
        )
        training = Training(self.seed, device_of(self.device), progress, self.checkpoints)
        with one_thread():
            private = private_fit(log, self._shape(users=1), budget, training)
        self._calendar, self._network, self.schema = private.calendar, private.network, private.schema
        self.privacy = private.statement

    def _encoded(self, values: dict[str, Floats]) -> Ints:
        """Codes of the columns, in order."""
        coded = {
            name: self._runs.encode(column, values["estimate_s"])
            if name == "runtime_s"
            else self._codes[name].encode(column)
            for name, column in values.items()
        }
        coded["gap_s"] = np.where(values["gap_s"] < 0, 0, coded["gap_s"])
        return np.stack(list(coded.values()), axis=1)

    @property
    def _order(self) -> list[str]:
        """Columns in the order in which they are generated: the run time after the request."""
        names = list(self._codes)
        index = names.index("estimate_s") + 1
        return [*names[:index], "runtime_s", *names[index:]]

    def _shape(self, users: int) -> NetworkShape:
        from kilowait.synth.transformer.network import NetworkShape

        order, settings = self._order, self.settings
        width, layers = PRIVATE_SIZE if settings.private else DEFAULT_SIZE
        return NetworkShape(
            sizes=tuple(self._runs.size if name == "runtime_s" else self._codes[name].size for name in order),
            conditions=tuple({**CONDITION_SIZES, "user": users}.values()),
            copied=tuple(order.index(name) for name in COPIED if name in order),
            width=settings.width or width,
            layers=settings.layers or layers,
            frequent_jobs=1 if settings.private else settings.frequent_jobs,
        )

    # -- sampling ----------------------------------------------------------------------------------

    @property
    def _draws(self) -> int:
        """Number of draws per week; 1 for private fits, which have no daily work to match."""
        return 1 if self.settings.private else int(self.settings.draws)

    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[SamplePart]:
        check_torch()
        calendar, schema = self._calendar, self.schema
        weeks = len(calendar.daily_work)
        # The weeks depend on the seed only: another layer is other work of the same users at the same time.
        week_rng = stream(seed, "synth.transformer.weeks")
        rng = stream(seed, f"synth.transformer.draw.{layer}")
        # Samples shorter than the log start at a random week of it; others at its start.
        first = int(week_rng.integers(weeks)) if jobs < schema.jobs else 0
        begin_s = schema.first_s + schema.zero_s
        last_day = int((begin_s + schema.span_s) // DAY_S % 7)
        week_sequence = sampled_weeks(DayRange(weeks, int(begin_s // DAY_S % 7), last_day), first, week_rng)
        sampled = group_size = 0
        while True:
            group_size = min(GROUP_JOBS, jobs - sampled if sampled < jobs else 2 * group_size)
            pieces: list[WeekPiece] = []
            piece_rows: list[Ints] = []
            count = empty_weeks = 0
            while count < group_size:
                empty_weeks += 1
                if empty_weeks > 3 * weeks + 10:
                    raise InputError("the calendar of the generator has no jobs in whole weeks; fit it again")
                for piece in next(week_sequence):
                    pieces.append(piece)
                    piece_rows.append(self._rows(piece))
                    count += len(piece_rows[-1])
                    empty_weeks = 0 if len(piece_rows[-1]) else empty_weeks
            jobs_sampled = self._jobs(pieces, piece_rows, rng, progress)
            if first:
                in_log = jobs_sampled["submit_s"] >= schema.first_s
                jobs_sampled = {name: column[in_log] for name, column in jobs_sampled.items()}
            jobs_sampled["submit_s"] = np.maximum(jobs_sampled["submit_s"], schema.first_s)
            sampled += count
            next_s = (begin_s // WEEK_S + pieces[-1].place + 1) * WEEK_S - schema.zero_s
            yield jobs_sampled, next_s - JITTER_S

    def _rows(self, piece: WeekPiece) -> Ints:
        """Rows of the calendar in a piece of a week."""
        calendar = self._calendar
        in_week = calendar.week[calendar.block] == piece.week
        return np.flatnonzero(in_week & (calendar.day >= piece.first) & (calendar.day <= piece.last))

    def _jobs(
        self, pieces: list[WeekPiece], piece_rows: list[Ints], rng: np.random.Generator, progress: SampleProgress
    ) -> Columns:
        """Sample jobs for pieces of the calendar's weeks: several draws of each user's week, of which one is
        selected."""
        calendar = self._calendar
        shift_weeks = np.concatenate(
            [np.full(len(rows), piece.place - piece.week) for piece, rows in zip(pieces, piece_rows, strict=True)]
        )
        rows = np.concatenate(piece_rows)
        # Weeks with the same shift are consecutive as in the log: so are the jobs of their users.
        order = np.lexsort((rows, shift_weeks))
        rows, shift_weeks = rows[order], shift_weeks[order]
        draws = self._sample_draws(rows, rng, progress)
        blocks = int(calendar.block[-1]) + 1
        shifted_block, block = np.unique(shift_weeks * blocks + calendar.block[rows], return_inverse=True)
        day, kinds = block * 7 + calendar.day[rows], calendar.kinds
        class_column = "runtime_s" if self.schema.exact_requests else "estimate_s"
        work: Floats = np.stack(
            [
                np.bincount(
                    day * kinds + calendar.kind(draw[class_column], draw["nodes"]),
                    draw["runtime_s"] * draw["nodes"],
                    7 * kinds * len(shifted_block),
                ).reshape(-1, 7, kinds)
                for draw in draws
            ]
        )
        sample_week = shifted_block // blocks + calendar.week[shifted_block % blocks] - pieces[0].place
        selected = select_draws(work, sample_week, self._daily_work(pieces), rng)[block]
        row_index = np.arange(len(rows))
        columns: Columns = {name: np.stack([draw[name] for draw in draws])[selected, row_index] for name in draws[0]}
        gap_s = columns.pop("gap_s")
        columns["submit_s"] = submission_times(calendar, rows, gap_s, rng) + shift_weeks * WEEK_S
        if "user" in self.schema.columns:
            columns["user"] = calendar.user[rows]
        if "power_w" in columns:
            power_w = columns.pop("power_w")
            columns["energy_j"] = np.where(power_w < 0, np.nan, power_w * columns["nodes"] * columns["runtime_s"])
        integer_columns = ("account", "queue", "gpus", "nodes", "status")
        return {
            name: column.astype(np.int64) if name in integer_columns else column for name, column in columns.items()
        }

    def _daily_work(self, pieces: list[WeekPiece]) -> Floats:
        """The log's cumulative node-seconds by day for each week of a sample."""
        daily = np.diff(self._calendar.daily_work, axis=1, prepend=0.0)
        work = np.zeros((pieces[-1].place - pieces[0].place + 1, *daily.shape[1:]))
        for piece in pieces:
            days = slice(piece.first, piece.last + 1)
            work[piece.place - pieces[0].place, days] += daily[piece.week, days]
        return work.cumsum(1)

    def _sample_draws(self, rows: Ints, rng: np.random.Generator, progress: SampleProgress) -> list[dict[str, Floats]]:
        """Several samples of the jobs at rows of the calendar."""
        from kilowait.synth.transformer.sample import job_sequences, sample_codes

        order, draws = self._order, self._draws
        with one_thread():
            codes = sample_codes(
                self._network,
                self._calendar,
                job_sequences(rows, self._calendar.first, draws),
                request=(order.index("estimate_s"), self._codes["estimate_s"].least()),
                runtime=(order.index("runtime_s"), self._runs.least_s()),
                seed=int(rng.integers(2**62)),
                progress=progress,
            )
        return [self._decoded(draw, rng) for draw in codes.reshape(draws, len(rows), -1)]

    def _decoded(self, codes: Ints, rng: np.random.Generator) -> dict[str, Floats]:
        values: dict[str, Floats] = {}
        for column, name in enumerate(self._order):
            if name == "runtime_s":
                values[name] = self._runs.decode(codes[:, column], values["estimate_s"], rng)
            else:
                interpolate = name in ("gap_s", "power_w")
                values[name] = self._codes[name].decode(codes[:, column], rng, between=interpolate)
        return values

    # -- storage -----------------------------------------------------------------------------------

    def _personal_data_text(self) -> str:
        return (
            super()._personal_data_text()
            if self.privacy is None
            else "nothing of any one user beyond the guarantee in `privacy`"
        )

    def _state(self) -> State:
        state = prefixed("calendar", self._calendar.state())
        for name, codes in self._all_codes().items():
            state |= prefixed(f"codes.{name}", codes.state())
        return state | prefixed("network", network_weights(self._network))

    def _all_codes(self) -> dict[str, Tokenizer]:
        near = {} if self._runs.near is None else {"near": self._runs.near}
        return {**self._codes, "below": self._runs.below, **near}

    def _restore(self, state: StoredArrays) -> None:
        check_torch()
        from kilowait.synth.transformer.network import TransformerNetwork

        columns, codes = self.schema.columns, state.group("codes")
        names = ["gap_s", *(name for name in COPIED if name in columns), *(["status"] if "status" in columns else [])]
        names += ["power_w"] if "energy_j" in columns else []
        self._codes = {name: Tokenizer.read(codes.group(name)) for name in names}
        near = Tokenizer.read(codes.group("near")) if len(codes.group("near")) else None
        of_request = self.settings.private and not self.schema.exact_requests
        self._runs = RuntimeTokenizer(Tokenizer.read(codes.group("below")), near, of_request)
        if self._runs.size > MAX_CODES:
            raise codes.refuse("near", f"and below give {self._runs.size:,} codes; there are at most {MAX_CODES:,}")
        self._calendar = Calendar.restored(
            state.group("calendar"),
            tuple(self._codes[name].size for name in COPIED if name in self._codes),
            int(self.schema.span_s / WEEK_S) + 3,
        )
        shape = self._shape(int(self._calendar.conditions[:, 0].max()) + 1)
        if self._calendar.share.shape[1] != shape.frequent_jobs:
            raise state.refuse("calendar.share", f"has no {shape.frequent_jobs} slots of frequent jobs")
        self._network = restored_network(lambda: TransformerNetwork(shape), state.group("network"))
