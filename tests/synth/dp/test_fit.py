"""Private fits: what one user can change is bounded, the books are Opacus', nothing of the log is in a folder."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from kilowait.errors import InputError, MissingExtraError
from kilowait.synth import fit_generator, load_generator
from kilowait.synth.dp.noisy_counts import (
    MAX_ENTRIES,
    Count,
    noisy_counts,
    shares,
)
from kilowait.synth.dp.public_bins import (
    REQUESTS_S,
    public_runtime_tokenizer,
    public_schema,
    public_tokenizer,
    to_public_values,
)
from kilowait.synth.log_schema import log_schema, rows_of
from tests.synth.test_generator import log

TINY = {"dp_epsilon": 8.0, "dp_steps": 3, "width": 8, "layers": 1}


class TestCounting:
    def test_one_user_changes_no_count_by_more_than_one(self):
        rng = np.random.default_rng(0)
        user = rng.integers(0, 30, 5000)
        kind = rng.integers(0, 7, 5000)
        kind[user == 3] = 2  # a user who does one thing only, a hundred times
        for most in (1, MAX_ENTRIES):
            every = Count(kind, user, 7, most)
            without = Count(kind[user != 3], user[user != 3], 7, most)
            # The same order of picking: what is compared is the bound, not the picks of others.
            found = [
                noisy_counts({"a": one}, 0.0, np.random.default_rng(1))[0]["a"] for one in (every, without)
            ]
            assert found[0].sum() - found[1].sum() <= 1 + 1e-9
            assert found[0].sum() <= 30 + 1e-9

    def test_noise_is_of_all_counts_together(self):
        nothing = Count(np.zeros(0, np.int64), np.zeros(0, np.int64), 20_000)
        found, deviation = noisy_counts(dict.fromkeys("abcd", nothing), 3.0, np.random.default_rng(0))
        assert deviation == 6.0
        assert found["a"].std() == pytest.approx(6.0, rel=0.02)

    def test_noise_alone_is_no_count(self):
        assert shares(np.array([1.0, -2.0, 30.0]), 3.0).tolist() == [0.0, 0.0, 1.0]
        assert shares(np.array([-1.0, -2.0]), 3.0).tolist() == [0.5, 0.5]


class TestGrid:
    def test_codes_and_facts_do_not_depend_on_the_jobs(self):
        one, other = log_schema(log(400)), log_schema(log(900, seed=5))
        for name in ("gap_s", "nodes", "gpus", "estimate_s", "queue", "status", "power_w"):
            left, right = (public_tokenizer(name, schema, 1800.0).state() for schema in (one, other))
            assert all(np.array_equal(left[part], right[part]) for part in left)
        left, right = public_schema(one), public_schema(other)
        assert left.columns == right.columns and "account" not in left.columns
        assert left.most_over_s == 0 == left.first_s % (7 * 86400) == left.span_s % (7 * 86400)
        assert left.longest_s == right.longest_s
        assert all(np.array_equal(left.seen[name], right.seen[name]) for name in left.seen)

    def test_requests_are_rounded_up_and_run_times_stay_below(self):
        schema = log_schema(log())
        rows = rows_of(log(), schema)
        found = to_public_values(rows, schema)
        assert np.isin(found["estimate_s"], REQUESTS_S).all()
        assert (found["estimate_s"] >= np.minimum(rows["estimate_s"], REQUESTS_S[-1])).all()
        assert (found["runtime_s"] <= found["estimate_s"]).all()

    @pytest.mark.parametrize("requests", [False, True])
    def test_run_times_come_back_in_their_bin(self, requests):
        runs = public_runtime_tokenizer(requests=requests)
        ran_s = np.array([0.0, 1, 90, 4000, 86400, 3e6])
        limit_s = np.array([60.0, 60, 100, 86400, 2e5, 4e6]) if requests else np.full(6, REQUESTS_S[-1])
        back_s = runs.decode(runs.encode(ran_s, limit_s), limit_s, np.random.default_rng(0))
        assert (np.abs(np.log2((back_s + 1) / (ran_s + 1))) <= 1).all()
        assert (back_s <= limit_s).all() and (back_s % 1 == 0).all()
        ended = runs.encode(np.array([3600.0]), np.array([3600.0]))
        assert runs.decode(ended, np.array([3600.0]), np.random.default_rng(0)).tolist() == [3600.0]

    def test_no_share_of_a_request_is_too_long_for_it(self):
        assert not public_runtime_tokenizer(requests=True).least_s().any()
        assert public_runtime_tokenizer(requests=False).least_s().max() > 86400


def test_without_opacus(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opacus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(MissingExtraError, match=r"opacus.*kilowait\[private\]"):
        fit_generator(log(), "transformer", **TINY)


class TestBudget:
    def test_what_is_spent_is_within_what_was_allowed_and_uses_it(self):
        pytest.importorskip("opacus")
        from kilowait.synth.dp.accountant import PrivacyBudget, noise_multiplier, spent_epsilon

        found = {}
        for epsilon in (1.0, 8.0):
            budget = PrivacyBudget(epsilon, 1e-5, 100, 0.1)
            found[epsilon] = noise_multiplier(budget)
            used = spent_epsilon([(found[epsilon], 1.0, 1), (found[epsilon], 0.1, 100)], 1e-5)
            assert 0.9 * epsilon < used <= epsilon
        assert found[1.0] > 3 * found[8.0]

    def test_a_known_mechanism(self):
        """One Gaussian mechanism, noise 1, delta 1e-5: exactly 4.38 (Balle and Wang 2018); Renyi's bound is above."""
        pytest.importorskip("opacus")
        from kilowait.synth.dp.accountant import spent_epsilon

        assert 4.37 < spent_epsilon([(1.0, 1.0, 1)], 1e-5) < 5.0

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"dp_epsilon": 0.0}, "dp_epsilon is 0.0; it must be above 0"),
            ({"dp_delta": 1.0}, "dp_delta is 1.0; it must be between 0 and 1"),
            ({"dp_rate": 0.0}, "dp_rate is 0.0; it must be above 0"),
        ],
    )
    def test_errors(self, settings, message):
        with pytest.raises(InputError, match=message):
            fit_generator(log(), "transformer", **{**TINY, **settings})

    def test_names_are_not_kept_in_private(self):
        with pytest.raises(InputError, match="dp_epsilon protects users, and keep_names keeps their names"):
            fit_generator(log(), "transformer", keep_names=True, **TINY)

    def test_nobody_to_hide(self):
        from kilowait.jobs import JobTable

        whole = log()
        nobody = JobTable(
            labels={"queue": whole.labels["queue"]},
            meta=whole.meta,
            **{name: whole[name] for name in whole.columns if name != "user"},
        )
        with pytest.raises(InputError, match="this log has no users"):
            fit_generator(nobody, "transformer", **TINY)


class TestTraining:
    def test_one_users_gradient_is_clipped_and_added_up(self, monkeypatch):
        """Without noise a step's gradient is the sum of clipped ones: no user moves it by more than the clip."""
        pytest.importorskip("opacus")
        import torch
        from opacus.optimizers import DPOptimizer

        from kilowait.synth.dp import train
        from kilowait.synth.dp.calendar import calendar_without_jobs, without_job_content
        from kilowait.synth.transformer import dataset as lessons
        from kilowait.synth.transformer.calendar import by_user
        from kilowait.synth.transformer.dataset import dataset_tensors, make_batch, next_job_loss
        from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork

        monkeypatch.setattr(lessons, "CONDITION_DROPOUT", 0.0)
        schema = log_schema(log(400))
        rows = rows_of(log(400), schema)
        shape = NetworkShape(
            sizes=(3, 5),
            conditions=(1, 24, 7, 32, 12, 14, 48, 24),
            copied=(1,),
            width=8,
            layers=1,
            frequent_jobs=1,
        )
        calendar = without_job_content(calendar_without_jobs(rows, 0.0, 1800.0), shape.copied, shape.sizes)
        codes = np.random.default_rng(0).integers(0, 3, (400, 2))
        people = train._user_ranges(by_user(rows)[1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = train._SequenceLoss(TransformerNetwork(shape))
            lesson = dataset_tensors(calendar, codes, shape, torch.device("cpu"))
            chosen = np.column_stack([np.arange(5), people[:5, 0]])
            train._gradients(module, lesson, chosen, people)
            one = {name: weight.grad_sample for name, weight in module.named_parameters()}
            assert all(len(found) == 5 for found in one.values())
            # Of the second user alone, the ordinary way.
            low, high = people[1]
            at = torch.arange(low, min(high, low + train.SEQUENCE_JOBS))[None]
            alone = make_batch(lesson, at, torch.zeros_like(at), torch.ones_like(at, dtype=torch.bool))
            next_job_loss(module.network, alone).backward()
            for name, weight in module.named_parameters():
                assert torch.allclose(one[name][1], weight.grad, atol=1e-5), name
            module.zero_grad()
            optimizer = DPOptimizer(
                torch.optim.SGD(module.parameters(), lr=0.0),
                noise_multiplier=0.0,
                max_grad_norm=0.5,
                expected_batch_size=1,
            )
            optimizer.pre_step()
            total = torch.cat([weight.grad.flatten() for weight in module.parameters()])
            apart = torch.cat([found.flatten(1) for found in one.values()], 1)
        norms = apart.norm(dim=1)
        assert (norms > 0.5).any()
        expected = (apart * (0.5 / norms).clamp(max=1)[:, None]).sum(0)
        assert torch.allclose(total, expected, atol=1e-4)

    def test_a_step_without_users_is_noise(self):
        pytest.importorskip("opacus")
        from kilowait.synth.dp import train

        assert train._sample_users(np.array([[0, 9], [9, 10]]), 1e-12, np.random.default_rng(0)).shape == (
            0,
            2,
        )
        made = fit_generator(log(), "transformer", **{**TINY, "dp_rate": 1e-9})
        assert made.privacy["epsilon"] <= 8


@pytest.fixture(scope="module")
def made():
    pytest.importorskip("opacus")
    return fit_generator(log(), "transformer", seed=3, **TINY)


class TestFolder:
    def test_the_card_says_what_is_promised(self, made, tmp_path):
        made.save(tmp_path)
        card = json.loads((tmp_path / "card.json").read_text())
        promised = card["privacy"]
        assert 7 < promised["epsilon"] <= 8 and promised["delta"] == 1e-5
        assert promised["unit"].startswith("user: all jobs of any one user")
        assert promised["mechanisms"]["gradients of users"]["times"] == 3
        assert promised["taken as public"] and promised["not covered"]
        again = load_generator(tmp_path)
        assert again.privacy == promised
        assert np.array_equal(again.sample(200, seed=1)["runtime_s"], made.sample(200, seed=1)["runtime_s"])

    def test_samples_are_on_the_grid(self, made):
        jobs = made.sample(500, seed=1)
        assert np.isin(jobs["estimate_s"], REQUESTS_S).all()
        assert (jobs["runtime_s"] <= jobs["estimate_s"]).all()
        assert jobs["nodes"].max() <= 64 and "account" not in jobs
        assert 1 <= jobs["user"].min() <= jobs["user"].max() <= made.schema.numbered["user"]

    def test_no_submission_of_the_log_is_in_the_folder(self, made):
        real = set(log()["submit_s"].tolist())
        state = made._state()
        times = {float(value) for value in state["calendar.session_s"]}
        assert len(times & real) < 0.05 * len(times)
        assert not state["calendar.share"].any() and not state["calendar.daily_work"].any()

    def test_two_fits_with_one_seed_differ_as_their_noise_is_secret(self, made):
        other = fit_generator(log(), "transformer", seed=3, **TINY)
        one, two = made._state(), other._state()
        assert not np.array_equal(one["network.answer.1.weight"], two["network.answer.1.weight"])


def test_gone_on_with_it_is_the_same_fit():
    pytest.importorskip("opacus")
    from kilowait.synth.dp import train

    class Kept:
        """Keeps states in memory; interrupts after the first if told to."""

        def __init__(self, stop):
            self.states, self.stop, self.begin = [], stop, None

        def read(self):
            return self.begin

        def write(self, state):
            import copy

            self.states.append(copy.deepcopy(state))
            if self.stop:
                raise KeyboardInterrupt

    every, train.CHECKPOINT_EVERY = train.CHECKPOINT_EVERY, 2
    try:
        whole = Kept(stop=False)
        first = fit_generator(log(), "transformer", checkpoints=whole, **TINY)
        again = Kept(stop=False)
        again.begin = whole.states[0]
        second = fit_generator(log(), "transformer", checkpoints=again, **TINY)
    finally:
        train.CHECKPOINT_EVERY = every
    one, two = first._state(), second._state()
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert first.privacy == second.privacy
