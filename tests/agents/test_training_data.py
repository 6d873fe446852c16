"""Mixing synthetic jobs with log jobs: shares, curricula, and the joined table."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.training_data import SyntheticMix, joined_table
from kilowait.envs.vector_env import BatchVectorEnv
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

REAL, MADE = kw.lublin(300, 32, load=1.0, seed=1), kw.lublin(200, 32, load=1.0, seed=2)
MACHINE = kw.Cluster.from_nodes(32)


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan")])
def test_share_must_be_from_0_to_1(share):
    with pytest.raises(InputError, match=r"from 0 \(log jobs only\) to 1"):
        SyntheticMix((MADE,), share)


def test_unknown_curriculum_is_an_error():
    with pytest.raises(UnknownNameError, match="did you mean 'synthetic-first'"):
        SyntheticMix((MADE,), 0.5, "synthetic-frist")
    assert [SyntheticMix((MADE,), 0.3).share_at(done) for done in (0.0, 0.9)] == [0.3, 0.3]


def test_parts_keep_their_jobs_and_hours():
    other = MADE.with_columns(submit_s=MADE["submit_s"] + 12345.0)
    laid = joined_table(REAL, SyntheticMix((MADE, other), 0.5))
    assert laid.parts == ((0, 300), (300, 500), (500, 700)) and laid.weights(0.5) == [0.5, 0.25, 0.25]
    for (low, high), table in zip(laid.parts, (REAL, MADE, other), strict=True):
        part = laid.jobs[low:high]
        moved = part["submit_s"] - table["submit_s"]
        assert np.ptp(moved) < 1e-3 and moved[0] % (7 * 86400) == pytest.approx(0)
        for name in ("runtime_s", "estimate_s", "nodes"):
            assert np.array_equal(part[name], table[name])
    assert (np.diff(laid.jobs["submit_s"]) >= 0).all()


def test_share_1_has_no_log_jobs():
    laid = joined_table(REAL, SyntheticMix((MADE,), 1.0))
    assert len(laid.jobs) == len(MADE) and laid.weights(1.0) == [1.0]


def test_queues_are_kept_only_if_labels_are_equal():
    def queued(table, names):
        columns = {name: table[name] for name in table.columns} | {"queue": np.arange(len(table)) % 2}
        return JobTable(labels={"queue": names}, **columns)

    one, other = queued(REAL, ("short", "long")), queued(MADE, ("short", "long"))
    assert joined_table(one, SyntheticMix((other,))).jobs.labels["queue"] == ("short", "long")
    assert "queue" not in joined_table(one, SyntheticMix((queued(MADE, ("long", "short")),))).jobs


def test_episodes_stay_within_parts_at_given_shares():
    laid = joined_table(REAL, SyntheticMix((MADE,), 0.25))
    vec = BatchVectorEnv(64, jobs=laid.jobs, cluster=MACHINE, episode_jobs=50, seed=0, queue_window=8)
    vec.set_episode_ranges(laid.parts, laid.weights(0.25))
    firsts = []
    for seed in range(20):
        vec.reset(seed=seed)
        firsts.append(vec.simulator.buffers.copies["next_first"].copy())
    first = np.concatenate(firsts)
    generated = first >= 300
    assert 0.2 < generated.mean() < 0.3
    assert first[~generated].max() <= 250 and first[generated].max() <= 450
    vec.set_episode_ranges(laid.parts, laid.weights(1.0))
    assert (vec.simulator.buffers.copies["next_first"] >= 300).all()  # from the next episode on
    vec.close()


def test_invalid_parts_and_weights_are_errors():
    vec = BatchVectorEnv(2, jobs=REAL, cluster=MACHINE, episode_jobs=50, queue_window=8)
    with pytest.raises(InputError, match="use shorter episodes"):
        vec.set_episode_ranges([(0, 40)], [1.0])
    with pytest.raises(InputError, match="give one weight per range"):
        vec.set_episode_ranges([(0, 100), (100, 300)], [0.5, 0.6])
    vec.close()
