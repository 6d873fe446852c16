"""Parts of the transformer: tokenizers, calendar, sampling, load matching, week order; and what it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kilowait.jobs import JobTable
from kilowait.synth import fit_generator
from kilowait.synth.log_schema import log_schema, rows_of
from kilowait.synth.transformer.calendar import CONDITION_SIZES, by_user, calendar_of, session_starts
from kilowait.synth.transformer.network import HEADS, NetworkShape, TransformerNetwork
from kilowait.synth.transformer.sample import MAX_SEQUENCE_JOBS, _read, job_sequences
from kilowait.synth.transformer.submit_times import DayRange, sampled_weeks, select_draws, submission_times
from kilowait.synth.transformer.tokenizer import fit_runtime_tokenizer, fit_tokenizer
from tests.synth.test_generator import log

values = st.lists(st.integers(0, 400), min_size=1, max_size=300).map(lambda found: np.array(found, np.float64))


class TestTokenizers:
    @given(values, st.integers(1, 40), st.integers(1, 12))
    def test_decoded_values_are_of_the_log_and_have_the_same_code(self, seen, atoms, bins):
        codes = fit_tokenizer(seen, atoms=atoms, bins=bins)
        coded = codes.encode(seen)
        assert coded.min() >= 0 and coded.max() < codes.size
        back = codes.decode(coded, np.random.default_rng(0))
        assert set(back.tolist()) <= set(seen.tolist())
        assert np.array_equal(codes.encode(back), coded)
        single = coded < len(codes.atoms)
        assert np.array_equal(back[single], seen[single])
        assert (codes.least()[coded] <= seen).all()

    @given(values, st.integers(0, 1000))
    def test_run_times(self, runtime, seed):
        request = np.random.default_rng(seed).choice([60.0, 300.0, 380.0], len(runtime))
        codes = fit_runtime_tokenizer(runtime, request, atoms=8, bins=9)
        coded = codes.encode(runtime, request)
        assert coded.max() < codes.size
        back = codes.decode(coded, request, np.random.default_rng(0))
        below = coded < codes.below.size  # run times near their request are coded by the difference, of either sign
        assert (back[below] <= request[below]).all()
        assert (back - request).max() <= max(0.0, (runtime - request).max())
        assert (codes.least_s()[coded] <= runtime).all()

    def test_interpolation_within_bins(self):
        runtime = np.array([1.0, 5, 9, 1000, 2000, 9000])
        codes = fit_tokenizer(runtime, atoms=1, bins=2)
        coded = np.tile(codes.encode(runtime), 300)
        decoded = codes.decode(coded, np.random.default_rng(0), between=True)
        assert np.array_equal(codes.encode(decoded), coded)
        assert not set(decoded.tolist()) <= set(runtime.tolist()) and (decoded % 1 == 0).all()
        assert decoded.min() >= 1 and decoded.max() <= 9000

    def test_run_times_do_not_accumulate_at_the_request(self):
        runtime = np.linspace(1000, 3000, 500).round()
        codes = fit_runtime_tokenizer(runtime, np.full(500, 1e6), atoms=0, bins=1)
        request = np.full(500, 1500.0)  # amid the bin
        decoded = codes.decode(np.zeros(500, np.int64), request, np.random.default_rng(0))
        assert decoded.max() <= 1500 and (decoded == 1500).mean() < 0.02
        assert decoded.min() < 1020 and np.median(decoded) == pytest.approx(1250, abs=40)

    def test_few_values_are_exact(self):
        requests = np.repeat([600.0, 3600.0, 43200.0], [50, 3, 1])
        codes = fit_tokenizer(requests, atoms=10, bins=4)
        assert codes.size == 3
        assert np.array_equal(codes.decode(codes.encode(requests), np.random.default_rng(0)), requests)


class TestCalendar:
    def test_long_sessions_are_split(self):
        submit_s = np.arange(0, 10 * 3600, 600.0)
        first, start = session_starts(submit_s, np.zeros(60, np.int64), 1800.0, 4 * 3600.0)
        assert first.sum() == 1
        assert submit_s[start].tolist() == [0, 4 * 3600, 8 * 3600]

    def test_split_sessions_are_shifted_together(self):
        submit_s = np.concatenate((np.arange(0, 86400, 600.0), [2e5, 2e5 + 60]))
        rows = {
            "submit_s": submit_s,
            "nodes": np.ones(len(submit_s), np.int64),
            "runtime_s": np.ones(len(submit_s)),
            "user": np.zeros(len(submit_s), np.int64),
        }
        codes = np.zeros((len(submit_s), 1), np.int64)
        calendar = calendar_of(rows, codes, (0,), (1,), zero_s=0.0, session_s=1800.0, frequent_jobs=1)
        assert calendar.goes_on.tolist() == [False] + [True] * 23 + [False]
        every, gap_s = np.arange(len(submit_s)), np.diff(submit_s, prepend=0.0)
        made_s = submission_times(calendar, every, gap_s, np.random.default_rng(0))
        assert np.array_equal(np.diff(made_s[:-2]), np.full(143, 600.0))  # regular gaps stay regular
        assert 0 < abs(made_s[0]) <= 900 and made_s[-1] - made_s[-2] == 60
        late_s = submission_times(calendar, every, 2 * gap_s, np.random.default_rng(0))
        assert (np.diff(late_s) >= 0).all()  # scaled down to fit

    def test_queues_replace_missing_users(self):
        rows = {"submit_s": np.arange(4.0), "queue": np.array([7, 3, 7, 3])}
        order, user = by_user(rows)
        assert order.tolist() == [1, 3, 0, 2] and user.tolist() == [0, 0, 1, 1]
        assert by_user({"submit_s": np.arange(2.0)})[1].tolist() == [0, 0]

    def test_busy_weeks_are_split_into_days(self):
        jobs = 1000
        submit_s = np.sort(np.random.default_rng(0).uniform(0, 14 * 86400, jobs)).round()
        rows = {
            "submit_s": submit_s,
            "nodes": np.ones(jobs, np.int64),
            "runtime_s": np.ones(jobs),
            "user": np.zeros(jobs, np.int64),
        }
        codes = np.zeros((jobs, 1), np.int64)
        calendar = calendar_of(rows, codes, (0,), (1,), zero_s=0.0, session_s=1800.0, frequent_jobs=1)
        assert len(calendar.week) == 14 and calendar.week.tolist() == [0] * 7 + [1] * 7
        busier = {name: np.repeat(column, 2) for name, column in rows.items()}
        calendar = calendar_of(
            busier, np.repeat(codes, 2, 0), (0,), (1,), zero_s=0.0, session_s=1800.0, frequent_jobs=1
        )
        assert len(calendar.week) == 14 * 6  # four hours each
        quiet = {name: column[::10] for name, column in rows.items()}
        calendar = calendar_of(quiet, codes[::10], (0,), (1,), zero_s=0.0, session_s=1800.0, frequent_jobs=1)
        assert calendar.week.tolist() == [0, 1]

    def calendar_of_six_jobs(self):
        table = JobTable(
            job_id=np.arange(1, 7),
            submit_s=[0, 60, 10_000, 10_010, 8 * 86400, 8 * 86400 + 5],
            runtime_s=[10, 20, 30, 40, 50, 60],
            nodes=[1, 1, 2, 1, 1, 1],
            user=[5, 5, 9, 5, 5, 5],
        )
        rows = {name: table[name] for name in ("submit_s", "runtime_s", "nodes", "estimate_s")}
        rows["user"] = np.array([0, 0, 1, 0, 0, 0])
        codes = np.array([[0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 1]])  # by user
        return calendar_of(rows, codes, (1,), (1, 2), zero_s=0.0, session_s=1800.0, frequent_jobs=2)

    def test_sessions_and_blocks(self):
        calendar = self.calendar_of_six_jobs()
        assert calendar.first.tolist() == [True, False, False, False, False, True]
        assert calendar.start.tolist() == [True, False, True, True, False, True]
        assert calendar.session_s.tolist() == [0, 10_010, 8 * 86400, 10_000]
        assert calendar.room_s.tolist() == [10_010, 8 * 86400 - 10_010, np.inf, np.inf]
        assert calendar.block.tolist() == [0, 0, 0, 1, 1, 2]
        assert calendar.week.tolist() == [0, 1, 0]

    def test_conditions(self):
        calendar = self.calendar_of_six_jobs()
        names = list(CONDITION_SIZES)
        column = {name: calendar.conditions[:, names.index(name)].tolist() for name in names}
        assert column["user"] == [0, 0, 0, 0, 0, 1]
        assert column["hour"] == [0, 0, 2, 0, 0, 2]
        assert column["remaining_jobs"] == [1, 0, 0, 1, 0, 0]
        assert [value == 0 for value in column["session_gap"]] == (~calendar.start).tolist()
        assert column["interarrival"][2] > column["interarrival"][3] > 0 == column["interarrival"][5]

    def test_frequent_jobs_and_daily_work(self):
        calendar = self.calendar_of_six_jobs()
        # 2 is an empty slot; in the first block jobs of 10 s, and of 20 and 40 s, are two shapes.
        assert calendar.frequent_jobs[:, :, 0].tolist() == [[0, 0], [0, 2], [1, 2]]
        assert (calendar.share > 0).tolist() == [[True, True], [True, False], [True, False]]
        assert calendar.level[0].tolist() == [1 + int(4 * np.log2(800**0.5)), 1 + int(4 * np.log2(10))]
        assert calendar.daily_work[0].sum(1).tolist() == [130.0] * 7  # 10 + 20 + 40 + 2 x 30
        assert calendar.daily_work[1].sum(1).tolist() == [0.0] + [110.0] * 6

    def test_daily_work_by_job_class(self):
        calendar = self.calendar_of_six_jobs()
        kind = calendar.kind(np.array([10.0, 20, 40, 50, 60, 30]), np.array([1, 1, 1, 1, 1, 2]))
        assert kind.max() < calendar.kinds == calendar.daily_work.shape[2]
        work = np.bincount(kind, [10.0, 20, 40, 50, 60, 60], calendar.kinds)
        assert calendar.daily_work[:, -1].sum(0).tolist() == work.tolist()


def test_sequences_are_split_by_user_and_length():
    first = np.zeros(2000, bool)
    first[[0, 700, 701]] = True
    sequences = job_sequences(np.arange(100, 2000), first, 1)
    assert sequences.begin.tolist() == [
        100,
        100 + MAX_SEQUENCE_JOBS,
        700,
        701,
        701 + MAX_SEQUENCE_JOBS,
        701 + 2 * MAX_SEQUENCE_JOBS,
    ]
    assert sequences.length.sum() == 1900


def test_incremental_and_full_attention_agree():
    shape = NetworkShape(sizes=(5, 7), conditions=(3,), copied=(1,), width=16, layers=2, window=6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TransformerNetwork(shape).eval()
        for layer in network.layers:
            torch.nn.init.normal_(layer.distance)
        x = torch.randn(2, 20, 16)
    place = torch.arange(20)
    distance = place[:, None] - place
    mask = ((distance >= 0) & (distance < shape.window)).expand(2, -1, -1)
    keys = torch.zeros(2, 2, HEADS, shape.window, 16 // HEADS)
    values = torch.zeros_like(keys)
    with torch.inference_mode():
        full = network.attend(x, mask, distance.clamp(0, shape.window - 1))
        incremental = torch.stack([_read(network, x[:, step], keys, values, step) for step in range(20)], 1)
    assert torch.allclose(full, incremental, atol=1e-5)


def test_selected_draws_match_the_target_work():
    rng = np.random.default_rng(0)
    work = rng.lognormal(0, 1.5, (4, 300, 7, 2))
    week = np.repeat(np.arange(10), 30)
    target = np.cumsum([rng.lognormal(0, 1.5, (30, 7, 2)).sum(0) for _ in range(10)], axis=1)
    selected = select_draws(work, week, target, rng)

    def error(draws, kinds):
        work_by_class = work[draws, np.arange(300)][..., kinds]
        total = np.array([work_by_class[week == number].sum() for number in range(10)])
        return np.abs(total / target[:, -1, kinds].sum(1) - 1)

    for kinds, factor in (([0, 1], 0.3), ([0], 0.5), ([1], 0.5)):
        assert error(selected, kinds).mean() < factor * error(np.zeros(300, int), kinds).mean()
    assert error(selected, [0, 1]).max() < 0.2
    assert (select_draws(work[:1], week, target, rng) == 0).all()


class TestWeeks:
    def first_weeks(self, span, first, count, seed=0):
        weeks_iterator = sampled_weeks(span, first, np.random.default_rng(seed))
        return [next(weeks_iterator) for _ in range(count)]

    @given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 6), st.integers(0, 99))
    def test_every_day_of_a_week_once(self, weeks, first, last, seed):
        span = DayRange(weeks, first, last if weeks > 1 else max(first, last))
        for place, pieces in enumerate(self.first_weeks(span, 0, 3 * weeks + 5, seed)):
            days = [day for piece in pieces for day in range(piece.first, piece.last + 1)]
            assert len(days) == len(set(days))
            assert all(piece.place == place for piece in pieces)
            if place >= weeks and weeks > 2:
                assert sorted(days) == list(range(7))
                for piece in pieces:  # only days of the log
                    assert piece.week > 0 or piece.first >= span.first
                    assert piece.week < weeks - 1 or piece.last <= span.last

    def test_first_turn_is_in_order(self):
        assert [pieces[0].week for pieces in self.first_weeks(DayRange(9, 2, 4), 3, 6)] == [3, 4, 5, 6, 7, 8]

    def test_later_turns_are_permutations(self):
        turns = [pieces[0].week for pieces in self.first_weeks(DayRange(9, 0, 6), 0, 9 * 5)]
        turns = [tuple(turns[low : low + 9]) for low in range(0, 45, 9)]
        assert all(sorted(turn) == list(range(9)) for turn in turns)
        assert len(set(turns)) == 5
        on_end = [np.mean(np.diff(turn) == 1) for turn in turns[1:]]
        assert 0.3 < np.mean(on_end) < 1  # mostly consecutive weeks

    def test_end_and_start_of_the_log_form_one_week(self):
        later = self.first_weeks(DayRange(5, 4, 3), 0, 20)[5:]
        seams = [pieces for pieces in later if len(pieces) == 2]
        assert {(p.week, p.first, p.last) for pieces in seams for p in pieces} == {(4, 0, 3), (0, 4, 6)}
        assert len(seams) == 4 == sum(pieces[0].week == 1 for pieces in later[:16])


@pytest.fixture(scope="module")
def real_and_sample():
    """A log in which every user always submits the same request, and a sample of a generator fitted to it."""
    full_log = log(1000)
    user = full_log["user"] % 4
    real = full_log.with_columns(
        user=user, nodes=2 ** (user % 7), estimate_s=600.0 * (1 + user), runtime_s=300.0 * (1 + user), queue=user % 2
    )
    generator = fit_generator(real, "transformer", passes=16, width=32, layers=1, keep_names=True)
    return real, generator.sample(1000, seed=1)


class TestLearning:
    def test_repeated_requests(self, real_and_sample):
        _, sample = real_and_sample
        user = sample["user"]
        assert (sample["nodes"] == 2 ** (user % 7)).mean() > 0.9
        assert (sample["estimate_s"] == 600.0 * (1 + user)).mean() > 0.9
        assert (np.abs(sample["runtime_s"] / sample["estimate_s"] - 0.5) < 0.05).mean() > 0.6

    def test_users_and_hours(self, real_and_sample):
        real, sample = real_and_sample
        assert np.array_equal(
            np.unique(sample["user"], return_counts=True), np.unique(real["user"], return_counts=True)
        )
        shares = [np.bincount((table["submit_s"] // 3600 % 24).astype(int), minlength=24) for table in (real, sample)]
        assert np.abs(shares[0] - shares[1]).sum() / 1000 < 0.3
        assert abs(sample["submit_s"].max() - real["submit_s"].max()) < 3600

    def test_weekly_work(self, real_and_sample):
        weekly = [
            np.bincount((table["submit_s"] // (7 * 86400)).astype(int), table["runtime_s"] * table["nodes"])
            for table in real_and_sample
        ]
        assert np.abs(weekly[1] / weekly[0] - 1).max() < 0.1

    def test_samples_longer_than_the_log(self, real_and_sample):
        real, _ = real_and_sample
        sample = fit_generator(real, "transformer", passes=0.2, width=16, layers=1).sample(2500, seed=1)
        assert sample["submit_s"].max() > 2 * real["submit_s"].max()
        assert (np.bincount((sample["submit_s"] // 86400).astype(int))[:80] > 0).mean() > 0.6


def test_schema_drops_user_names():
    schema = log_schema(log())
    assert "user" not in schema.seen and "user" not in schema.labels and schema.numbered == {"user": 12, "account": 4}
    assert rows_of(log(), schema)["user"].max() == 11


def test_samples_of_a_log_without_requests(monkeypatch):
    full_log = log(400)
    real = full_log.with_columns(estimate_s=full_log["runtime_s"])
    kinds = []

    def record(work, week, target, rng):
        kinds.append((work.sum((0, 1, 2)) > 0, target[:, -1].sum(0) > 0))
        return select_draws(work, week, target, rng)

    monkeypatch.setattr("kilowait.synth.transformer.select_draws", record)
    sample = fit_generator(real, "transformer", passes=0.5, width=8, layers=1).sample(400, seed=1)
    # Job classes are defined by run times, in the draws as in the log.
    assert all((sampled & target).sum() > target.sum() / 2 for sampled, target in kinds) and kinds
    assert np.array_equal(sample["estimate_s"], sample["runtime_s"])
    assert sample["runtime_s"].max() <= real["runtime_s"].max()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
def test_on_a_gpu():
    """A network trained on a GPU is returned on the CPU, can be resumed, and gives jobs."""
    from kilowait.synth import trainer

    class MemoryStore:
        states, begin = [], None

        def read_if_exists(self):
            return self.begin

        def write(self, state):
            import copy

            self.states.append(copy.deepcopy(state))

    first_store, second_store = MemoryStore(), MemoryStore()
    tiny = {"passes": 2, "width": 16, "layers": 1, "device": "cuda"}
    interval, trainer.CHECKPOINT_EVERY = trainer.CHECKPOINT_EVERY, 4
    try:
        complete = fit_generator(log(), "transformer", checkpoints=first_store, **tiny)
        second_store.begin = first_store.states[0]
        resumed = fit_generator(log(), "transformer", checkpoints=second_store, **tiny)
    finally:
        trainer.CHECKPOINT_EVERY = interval
    complete_state, resumed_state = complete._state(), resumed._state()
    for name in complete_state:
        assert np.allclose(complete_state[name], resumed_state[name], atol=1e-3), name
    assert len(complete.sample(300, seed=1)) == 300
