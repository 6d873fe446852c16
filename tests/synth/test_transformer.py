"""The transformer's parts: codes, the calendar, one job at a time as all at once, steering, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kilowait.jobs import JobTable
from kilowait.synth import fit_generator
from kilowait.synth.log_schema import log_schema, rows_of
from kilowait.synth.transformer.calendar import CONDITIONS, by_user, calendar_of, session_starts
from kilowait.synth.transformer.load_matching import select_draws
from kilowait.synth.transformer.network import HEADS, NetworkShape, TransformerNetwork
from kilowait.synth.transformer.sample import LONGEST, _read, chains_of
from kilowait.synth.transformer.submit_times import moments
from kilowait.synth.transformer.tokenizer import codes_of, run_codes_of
from kilowait.synth.transformer.week_order import DayRange, weeks_of
from tests.synth.test_generator import log

values = st.lists(st.integers(0, 400), min_size=1, max_size=300).map(
    lambda found: np.array(found, np.float64)
)


class TestCodes:
    @given(values, st.integers(1, 40), st.integers(1, 12))
    def test_what_comes_back_is_of_the_same_code_and_of_the_log(self, seen, atoms, bins):
        codes = codes_of(seen, atoms=atoms, bins=bins)
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
        codes = run_codes_of(runtime, request, atoms=8, bins=9)
        coded = codes.encode(runtime, request)
        assert coded.max() < codes.size
        back = codes.decode(coded, request, np.random.default_rng(0))
        over = runtime > request
        assert (back[~over] <= request[~over]).all()
        assert (back - request).max() <= max(0.0, (runtime - request).max())
        assert (codes.least_s()[coded] <= runtime).all()

    def test_between_the_values_of_a_bin(self):
        ran = np.array([1.0, 5, 9, 1000, 2000, 9000])
        codes = codes_of(ran, atoms=1, bins=2)
        coded = np.tile(codes.encode(ran), 300)
        back = codes.decode(coded, np.random.default_rng(0), between=True)
        assert np.array_equal(codes.encode(back), coded)
        assert not set(back.tolist()) <= set(ran.tolist()) and (back % 1 == 0).all()
        assert back.min() >= 1 and back.max() <= 9000

    def test_run_times_do_not_pile_up_at_the_request(self):
        ran = np.linspace(1000, 3000, 500).round()
        codes = run_codes_of(ran, np.full(500, 1e6), atoms=0, bins=1)
        under = np.full(500, 1500.0)  # amid the bin
        back = codes.decode(np.zeros(500, np.int64), under, np.random.default_rng(0))
        assert back.max() <= 1500 and (back == 1500).mean() < 0.02
        assert back.min() < 1020 and np.median(back) == pytest.approx(1250, abs=40)

    def test_few_values_are_all_exact(self):
        requests = np.repeat([600.0, 3600.0, 43200.0], [50, 3, 1])
        codes = codes_of(requests, atoms=10, bins=4)
        assert codes.size == 3
        assert np.array_equal(codes.decode(codes.encode(requests), np.random.default_rng(0)), requests)


class TestCalendar:
    def test_long_sessions_are_cut(self):
        submit_s = np.arange(0, 10 * 3600, 600.0)
        first, start = session_starts(submit_s, np.zeros(60, np.int64), 1800.0, 4 * 3600.0)
        assert first.sum() == 1
        assert submit_s[start].tolist() == [0, 4 * 3600, 8 * 3600]

    def test_what_was_cut_is_moved_together(self):
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
        made_s = moments(calendar, every, gap_s, np.random.default_rng(0))
        assert np.array_equal(np.diff(made_s[:-2]), np.full(143, 600.0))  # a clock stays a clock
        assert 0 < abs(made_s[0]) <= 900 and made_s[-1] - made_s[-2] == 60
        late_s = moments(calendar, every, 2 * gap_s, np.random.default_rng(0))
        assert (np.diff(late_s) >= 0).all()  # too long for the hour: squeezed into it

    def test_a_queue_stands_for_who_submits_where_nobody_is_known(self):
        rows = {"submit_s": np.arange(4.0), "queue": np.array([7, 3, 7, 3])}
        order, user = by_user(rows)
        assert order.tolist() == [1, 3, 0, 2] and user.tolist() == [0, 0, 1, 1]
        assert by_user({"submit_s": np.arange(2.0)})[1].tolist() == [0, 0]

    def test_busy_weeks_are_days(self):
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

    def made(self):
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
        calendar = self.made()
        assert calendar.first.tolist() == [True, False, False, False, False, True]
        assert calendar.start.tolist() == [True, False, True, True, False, True]
        assert calendar.session_s.tolist() == [0, 10_010, 8 * 86400, 10_000]
        assert calendar.room_s.tolist() == [10_010, 8 * 86400 - 10_010, np.inf, np.inf]
        assert calendar.block.tolist() == [0, 0, 0, 1, 1, 2]
        assert calendar.week.tolist() == [0, 1, 0]

    def test_what_is_known_beforehand(self):
        calendar = self.made()
        names = list(CONDITIONS)
        column = {name: calendar.conditions[:, names.index(name)].tolist() for name in names}
        assert column["user"] == [0, 0, 0, 0, 0, 1]
        assert column["hour"] == [0, 0, 2, 0, 0, 2]
        assert column["left"] == [1, 0, 0, 1, 0, 0]
        assert [value == 0 for value in column["since"]] == (~calendar.start).tolist()
        assert column["arrival_rate"][2] > column["pace"][3] > 0 == column["pace"][5]

    def test_menus_and_work(self):
        calendar = self.made()
        # 2 is an empty place; of the first block the jobs of 10 s and those of 20 and 40 s are two kinds.
        assert calendar.frequent_jobs[:, :, 0].tolist() == [[0, 0], [0, 2], [1, 2]]
        assert (calendar.share > 0).tolist() == [[True, True], [True, False], [True, False]]
        assert calendar.level[0].tolist() == [1 + int(4 * np.log2(800**0.5)), 1 + int(4 * np.log2(10))]
        assert calendar.daily_work[0].sum(1).tolist() == [130.0] * 7  # 10 + 20 + 40 + 2 x 30
        assert calendar.daily_work[1].sum(1).tolist() == [0.0] + [110.0] * 6

    def test_work_is_kept_by_kind(self):
        calendar = self.made()
        kind = calendar.kind(np.array([10.0, 20, 40, 50, 60, 30]), np.array([1, 1, 1, 1, 1, 2]))
        assert kind.max() < calendar.kinds == calendar.daily_work.shape[2]
        work = np.bincount(kind, [10.0, 20, 40, 50, 60, 60], calendar.kinds)
        assert calendar.daily_work[:, -1].sum(0).tolist() == work.tolist()


def test_chains_do_not_cross_users_and_are_not_too_long():
    first = np.zeros(2000, bool)
    first[[0, 700, 701]] = True
    chains = chains_of(np.arange(100, 2000), first, 1)
    assert chains.begin.tolist() == [100, 100 + LONGEST, 700, 701, 701 + LONGEST, 701 + 2 * LONGEST]
    assert chains.length.sum() == 1900


def test_one_job_at_a_time_is_all_at_once():
    shape = NetworkShape(sizes=(5, 7), conditions=(3,), copied=(1,), width=16, layers=2, window=6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TransformerNetwork(shape).eval()
        for layer in network.layers:
            torch.nn.init.normal_(layer.distance)
        x = torch.randn(2, 20, 16)
    place = torch.arange(20)
    back = place[:, None] - place
    seen = ((back >= 0) & (back < shape.window)).expand(2, -1, -1)
    keys = torch.zeros(2, 2, HEADS, shape.window, 16 // HEADS)
    values = torch.zeros_like(keys)
    with torch.inference_mode():
        whole = network.read(x, seen, back.clamp(0, shape.window - 1))
        single = torch.stack([_read(network, x[:, turn], keys, values, turn) for turn in range(20)], 1)
    assert torch.allclose(whole, single, atol=1e-5)


def test_steering_brings_the_work_to_what_is_wanted():
    rng = np.random.default_rng(0)
    work = rng.lognormal(0, 1.5, (4, 300, 7, 2))
    week = np.repeat(np.arange(10), 30)
    wanted = np.cumsum([rng.lognormal(0, 1.5, (30, 7, 2)).sum(0) for _ in range(10)], axis=1)
    taken = select_draws(work, week, wanted, rng)

    def missed(pick, kinds):
        mine = work[pick, np.arange(300)][..., kinds]
        total = np.array([mine[week == number].sum() for number in range(10)])
        return np.abs(total / wanted[:, -1, kinds].sum(1) - 1)

    for kinds, least in (([0, 1], 0.3), ([0], 0.5), ([1], 0.5)):
        assert missed(taken, kinds).mean() < least * missed(np.zeros(300, int), kinds).mean()
    assert missed(taken, [0, 1]).max() < 0.2
    assert (select_draws(work[:1], week, wanted, rng) == 0).all()


class TestWeeks:
    def taken(self, span, first, count, seed=0):
        coming = weeks_of(span, first, np.random.default_rng(seed))
        return [next(coming) for _ in range(count)]

    @given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 6), st.integers(0, 99))
    def test_every_day_of_a_week_once(self, weeks, first, last, seed):
        span = DayRange(weeks, first, last if weeks > 1 else max(first, last))
        for place, pieces in enumerate(self.taken(span, 0, 3 * weeks + 5, seed)):
            days = [day for piece in pieces for day in range(piece.first, piece.last + 1)]
            assert len(days) == len(set(days))
            assert all(piece.place == place for piece in pieces)
            if place >= weeks and weeks > 2:
                assert sorted(days) == list(range(7))
                for piece in pieces:  # no day that the log does not have
                    assert piece.week > 0 or piece.first >= span.first
                    assert piece.week < weeks - 1 or piece.last <= span.last

    def test_first_as_they_came(self):
        assert [pieces[0].week for pieces in self.taken(DayRange(9, 2, 4), 3, 6)] == [3, 4, 5, 6, 7, 8]

    def test_then_in_other_orders_but_all_of_them(self):
        turns = [pieces[0].week for pieces in self.taken(DayRange(9, 0, 6), 0, 9 * 5)]
        turns = [tuple(turns[low : low + 9]) for low in range(0, 45, 9)]
        assert all(sorted(turn) == list(range(9)) for turn in turns)
        assert len(set(turns)) == 5
        on_end = [np.mean(np.diff(turn) == 1) for turn in turns[1:]]
        assert 0.3 < np.mean(on_end) < 1  # mostly the week after follows

    def test_the_end_and_the_beginning_make_one_week(self):
        later = self.taken(DayRange(5, 4, 3), 0, 20)[5:]
        seams = [pieces for pieces in later if len(pieces) == 2]
        assert {(p.week, p.first, p.last) for pieces in seams for p in pieces} == {(4, 0, 3), (0, 4, 6)}
        assert len(seams) == 4 == sum(pieces[0].week == 1 for pieces in later[:16])


@pytest.fixture(scope="module")
def pair():
    """A log in which every user has one way of asking, and a sample of what was learned of it."""
    whole = log(1000)
    user = whole["user"] % 4
    real = whole.with_columns(
        user=user,
        nodes=2 ** (user % 7),
        estimate_s=600.0 * (1 + user),
        runtime_s=300.0 * (1 + user),
        queue=user % 2,
    )
    generator = fit_generator(real, "transformer", passes=16, width=32, layers=1, names=True)
    return real, generator.sample(1000, seed=1)


class TestLearning:
    def test_habits(self, pair):
        _, made = pair
        user = made["user"]
        assert (made["nodes"] == 2 ** (user % 7)).mean() > 0.9
        assert (made["estimate_s"] == 600.0 * (1 + user)).mean() > 0.9
        assert (np.abs(made["runtime_s"] / made["estimate_s"] - 0.5) < 0.05).mean() > 0.6

    def test_who_submits_when(self, pair):
        real, made = pair
        assert np.array_equal(
            np.unique(made["user"], return_counts=True), np.unique(real["user"], return_counts=True)
        )
        shares = [
            np.bincount((table["submit_s"] // 3600 % 24).astype(int), minlength=24) for table in (real, made)
        ]
        assert np.abs(shares[0] - shares[1]).sum() / 1000 < 0.3
        assert abs(made["submit_s"].max() - real["submit_s"].max()) < 3600

    def test_the_work_of_weeks(self, pair):
        weekly = [
            np.bincount((table["submit_s"] // (7 * 86400)).astype(int), table["runtime_s"] * table["nodes"])
            for table in pair
        ]
        assert np.abs(weekly[1] / weekly[0] - 1).max() < 0.1

    def test_more_jobs_go_on_in_time(self, pair):
        real, _ = pair
        made = fit_generator(real, "transformer", passes=0.2, width=16, layers=1).sample(2500, seed=1)
        assert made["submit_s"].max() > 2 * real["submit_s"].max()
        assert (np.bincount((made["submit_s"] // 86400).astype(int))[:80] > 0).mean() > 0.6


def test_facts_forget_who_people_are():
    facts = log_schema(log())
    assert (
        "user" not in facts.seen
        and "user" not in facts.labels
        and facts.numbered == {"user": 12, "account": 4}
    )
    assert rows_of(log(), facts)["user"].max() == 11


def test_a_log_without_requests_has_none_in_samples(monkeypatch):
    whole = log(400)
    real = whole.with_columns(estimate_s=whole["runtime_s"])
    kinds = []

    def seen(work, week, wanted, rng):
        kinds.append((work.sum((0, 1, 2)) > 0, wanted[:, -1].sum(0) > 0))
        return select_draws(work, week, wanted, rng)

    monkeypatch.setattr("kilowait.synth.transformer.generator.select_draws", seen)
    made = fit_generator(real, "transformer", passes=0.5, width=8, layers=1).sample(400, seed=1)
    # Long and short jobs are told apart by their run times, in draws as in the log.
    assert all((drawn & wanted).sum() > wanted.sum() / 2 for drawn, wanted in kinds) and kinds
    assert np.array_equal(made["estimate_s"], made["runtime_s"])
    assert made["runtime_s"].max() <= real["runtime_s"].max()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
def test_on_a_gpu():
    """What is learned there comes back to the processor, goes on after a kill, and makes jobs."""
    from kilowait.synth import checkpoint

    class Kept:
        states, begin = [], None

        def read(self):
            return self.begin

        def write(self, state):
            import copy

            self.states.append(copy.deepcopy(state))

    kept, again = Kept(), Kept()
    tiny = {"passes": 2, "width": 16, "layers": 1, "device": "cuda"}
    every, checkpoint.KEPT_EVERY = checkpoint.KEPT_EVERY, 4
    try:
        whole = fit_generator(log(), "transformer", keep=kept, **tiny)
        again.begin = kept.states[0]
        parts = fit_generator(log(), "transformer", keep=again, **tiny)
    finally:
        checkpoint.KEPT_EVERY = every
    one, two = whole._state(), parts._state()
    for name in one:
        assert np.allclose(one[name], two[name], atol=1e-3), name
    assert len(whole.sample(300, seed=1)) == 300
