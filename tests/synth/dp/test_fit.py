"""Private fits: bounded sensitivity per user, privacy accounting by Opacus, no log data in the folder."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from kilowait.errors import InputError, MissingExtraError
from kilowait.synth import fit_generator, load_generator
from kilowait.synth.dp.calendar import MAX_ENTRIES, Count, noisy_counts, shares
from kilowait.synth.dp.public_codes import (
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
        category = rng.integers(0, 7, 5000)
        category[user == 3] = 2  # a user with over a hundred entries of one category
        for max_entries in (1, MAX_ENTRIES):
            full = Count(category, user, 7, max_entries)
            without = Count(category[user != 3], user[user != 3], 7, max_entries)
            # The same random state for both counts: only the bound is compared.
            counts = [noisy_counts({"a": count}, 0.0, np.random.default_rng(1))[0]["a"] for count in (full, without)]
            assert counts[0].sum() - counts[1].sum() <= 1 + 1e-9
            assert counts[0].sum() <= 30 + 1e-9

    def test_noise_scales_with_the_number_of_counts(self):
        empty = Count(np.zeros(0, np.int64), np.zeros(0, np.int64), 20_000)
        noisy, deviation = noisy_counts(dict.fromkeys("abcd", empty), 3.0, np.random.default_rng(0))
        assert deviation == 6.0
        assert noisy["a"].std() == pytest.approx(6.0, rel=0.02)

    def test_counts_below_the_noise_get_no_share(self):
        assert shares(np.array([1.0, -2.0, 30.0]), 3.0).tolist() == [0.0, 0.0, 1.0]
        assert shares(np.array([-1.0, -2.0]), 3.0).tolist() == [0.5, 0.5]


class TestPublicBins:
    def test_codes_and_schema_do_not_depend_on_the_jobs(self):
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
    def test_run_times_are_decoded_within_their_bin(self, requests):
        runs = public_runtime_tokenizer(requests=requests)
        ran_s = np.array([0.0, 1, 90, 4000, 86400, 3e6])
        limit_s = np.array([60.0, 60, 100, 86400, 2e5, 4e6]) if requests else np.full(6, REQUESTS_S[-1])
        back_s = runs.decode(runs.encode(ran_s, limit_s), limit_s, np.random.default_rng(0))
        assert (np.abs(np.log2((back_s + 1) / (ran_s + 1))) <= 1).all()
        assert (back_s <= limit_s).all() and (back_s % 1 == 0).all()
        ended = runs.encode(np.array([3600.0]), np.array([3600.0]))
        assert runs.decode(ended, np.array([3600.0]), np.random.default_rng(0)).tolist() == [3600.0]

    def test_codes_relative_to_the_request_have_minimum_0(self):
        assert not public_runtime_tokenizer(requests=True).least_s().any()
        assert public_runtime_tokenizer(requests=False).least_s().max() > 86400


def test_without_opacus(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opacus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(MissingExtraError, match=r"opacus.*\[private\]"):
        fit_generator(log(), "transformer", **TINY)


class TestBudget:
    def test_spent_epsilon_is_just_below_the_budget(self):
        pytest.importorskip("opacus")
        from kilowait.synth.dp.train import PrivacyBudget, noise_multiplier, spent_epsilon

        noise = {}
        for epsilon in (1.0, 8.0):
            budget = PrivacyBudget(epsilon, 1e-5, 100, 0.1)
            noise[epsilon] = noise_multiplier(budget)
            epsilon_spent = spent_epsilon([(noise[epsilon], 1.0, 1), (noise[epsilon], 0.1, 100)], 1e-5)
            assert 0.9 * epsilon < epsilon_spent <= epsilon
        assert noise[1.0] > 3 * noise[8.0]

    def test_epsilon_of_one_gaussian_mechanism(self):
        """One Gaussian mechanism, noise 1, delta 1e-5: exactly 4.38 (Balle and Wang 2018); Renyi's bound is above."""
        pytest.importorskip("opacus")
        from kilowait.synth.dp.train import spent_epsilon

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

    def test_private_fit_rejects_keep_names(self):
        with pytest.raises(InputError, match="dp_epsilon protects users, and keep_names keeps their names"):
            fit_generator(log(), "transformer", keep_names=True, **TINY)

    def test_private_fit_rejects_a_log_without_users(self):
        from kilowait.jobs import JobTable

        full_log = log()
        without_users = JobTable(
            labels={"queue": full_log.labels["queue"]},
            meta=full_log.meta,
            **{name: full_log[name] for name in full_log.columns if name != "user"},
        )
        with pytest.raises(InputError, match="this log has no users"):
            fit_generator(without_users, "transformer", **TINY)


class TestTraining:
    def test_gradients_are_clipped_per_user_and_summed(self, monkeypatch):
        """Without noise the gradient of a step is the sum of the clipped gradients of the users."""
        pytest.importorskip("opacus")
        import torch
        from opacus.optimizers import DPOptimizer

        from kilowait.synth.dp import train
        from kilowait.synth.dp.calendar import calendar_without_jobs, without_job_content
        from kilowait.synth.transformer import train as transformer_train
        from kilowait.synth.transformer.calendar import by_user
        from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork
        from kilowait.synth.transformer.train import dataset_tensors, make_batch, next_job_loss

        monkeypatch.setattr(transformer_train, "CONDITION_DROPOUT", 0.0)
        schema = log_schema(log(400))
        rows = rows_of(log(400), schema)
        shape = NetworkShape(
            sizes=(3, 5), conditions=(1, 24, 7, 32, 12, 14, 48, 24), copied=(1,), width=8, layers=1, frequent_jobs=1
        )
        calendar = without_job_content(calendar_without_jobs(rows, 0.0, 1800.0), shape.copied, shape.sizes)
        codes = np.random.default_rng(0).integers(0, 3, (400, 2))
        user_ranges = train._user_ranges(by_user(rows)[1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = train._SequenceLoss(TransformerNetwork(shape))
            tensors = dataset_tensors(calendar, codes, shape, torch.device("cpu"))
            sampled = np.column_stack([np.arange(5), user_ranges[:5, 0]])
            train._gradients(module, tensors, sampled, user_ranges)
            gradients = {name: weight.grad_sample for name, weight in module.named_parameters()}
            assert all(len(gradient) == 5 for gradient in gradients.values())
            # Gradient of the second user alone, by ordinary backpropagation.
            low, high = user_ranges[1]
            rows_of_user = torch.arange(low, min(high, low + train.SEQUENCE_JOBS))[None]
            batch = make_batch(
                tensors, rows_of_user, torch.zeros_like(rows_of_user), torch.ones_like(rows_of_user, dtype=torch.bool)
            )
            next_job_loss(module.network, batch).backward()
            for name, weight in module.named_parameters():
                assert torch.allclose(gradients[name][1], weight.grad, atol=1e-5), name
            module.zero_grad()
            optimizer = DPOptimizer(
                torch.optim.SGD(module.parameters(), lr=0.0),
                noise_multiplier=0.0,
                max_grad_norm=0.5,
                expected_batch_size=1,
            )
            optimizer.pre_step()
            total = torch.cat([weight.grad.flatten() for weight in module.parameters()])
            per_user = torch.cat([gradient.flatten(1) for gradient in gradients.values()], 1)
        norms = per_user.norm(dim=1)
        assert (norms > 0.5).any()
        expected = (per_user * (0.5 / norms).clamp(max=1)[:, None]).sum(0)
        assert torch.allclose(total, expected, atol=1e-4)

    def test_step_without_sampled_users(self):
        pytest.importorskip("opacus")
        from kilowait.synth.dp import train

        assert train._sample_users(np.array([[0, 9], [9, 10]]), 1e-12, np.random.default_rng(0)).shape == (0, 2)
        generator = fit_generator(log(), "transformer", **{**TINY, "dp_rate": 1e-9})
        assert generator.privacy["epsilon"] <= 8


@pytest.fixture(scope="module")
def generator():
    pytest.importorskip("opacus")
    return fit_generator(log(), "transformer", seed=3, **TINY)


class TestFolder:
    def test_card_states_the_privacy_guarantee(self, generator, tmp_path):
        generator.save(tmp_path)
        card = json.loads((tmp_path / "card.json").read_text())
        privacy = card["privacy"]
        assert 7 < privacy["epsilon"] <= 8 and privacy["delta"] == 1e-5
        assert privacy["unit"].startswith("user: all jobs of any one user")
        assert privacy["mechanisms"]["gradients of users"]["times"] == 3
        assert privacy["taken as public"] and privacy["not covered"]
        loaded = load_generator(tmp_path)
        assert loaded.privacy == privacy
        assert np.array_equal(loaded.sample(200, seed=1)["runtime_s"], generator.sample(200, seed=1)["runtime_s"])

    def test_samples_are_on_the_grid(self, generator):
        jobs = generator.sample(500, seed=1)
        assert np.isin(jobs["estimate_s"], REQUESTS_S).all()
        assert (jobs["runtime_s"] <= jobs["estimate_s"]).all()
        assert jobs["nodes"].max() <= 64 and "account" not in jobs
        assert 1 <= jobs["user"].min() <= jobs["user"].max() <= generator.schema.numbered["user"]

    def test_folder_contains_no_submission_times_of_the_log(self, generator):
        real = set(log()["submit_s"].tolist())
        state = generator._state()
        times = {float(value) for value in state["calendar.session_s"]}
        assert len(times & real) < 0.05 * len(times)
        assert not state["calendar.share"].any() and not state["calendar.daily_work"].any()

    def test_fits_with_the_same_seed_differ_by_secret_noise(self, generator):
        other = fit_generator(log(), "transformer", seed=3, **TINY)
        one, two = generator._state(), other._state()
        assert not np.array_equal(one["network.answer.1.weight"], two["network.answer.1.weight"])


def test_resumed_fit_equals_the_uninterrupted_fit():
    pytest.importorskip("opacus")
    from kilowait.synth.dp import train

    class MemoryStore:
        """Checkpoint store in memory; raises KeyboardInterrupt after the first write if `stop`."""

        def __init__(self, stop):
            self.states, self.stop, self.begin = [], stop, None

        def read_if_exists(self):
            return self.begin

        def write(self, state):
            import copy

            self.states.append(copy.deepcopy(state))
            if self.stop:
                raise KeyboardInterrupt

    interval, train.CHECKPOINT_EVERY = train.CHECKPOINT_EVERY, 2
    try:
        complete = MemoryStore(stop=False)
        uninterrupted = fit_generator(log(), "transformer", checkpoints=complete, **TINY)
        resumed = MemoryStore(stop=False)
        resumed.begin = complete.states[0]
        resumed_fit = fit_generator(log(), "transformer", checkpoints=resumed, **TINY)
    finally:
        train.CHECKPOINT_EVERY = interval
    complete_state, resumed_state = uninterrupted._state(), resumed_fit._state()
    assert all(np.array_equal(complete_state[name], resumed_state[name]) for name in complete_state)
    assert uninterrupted.privacy == resumed_fit.privacy
