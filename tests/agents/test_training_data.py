"""Mixing synthetic jobs with log jobs: shares, curricula, and the joined table."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.training_data import SyntheticMix, joined_table
from kilowait.envs.batch_env import BatchVectorEnv
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

REAL, SYNTHETIC = kw.lublin(300, 32, load=1.0, seed=1), kw.lublin(200, 32, load=1.0, seed=2)
MACHINE = kw.Cluster.from_nodes(32)


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan")])
def test_share_must_be_from_0_to_1(share):
    with pytest.raises(InputError, match=r"from 0 \(log jobs only\) to 1"):
        SyntheticMix((SYNTHETIC,), share)


def test_unknown_curriculum_is_an_error():
    with pytest.raises(UnknownNameError, match="did you mean 'synthetic-first'"):
        SyntheticMix((SYNTHETIC,), 0.5, "synthetic-frist")
    assert [SyntheticMix((SYNTHETIC,), 0.3).share_at(done) for done in (0.0, 0.9)] == [0.3, 0.3]


def test_parts_keep_their_jobs_and_hours():
    other = SYNTHETIC.with_columns(submit_s=SYNTHETIC["submit_s"] + 12345.0)
    joined = joined_table(REAL, SyntheticMix((SYNTHETIC, other), 0.5))
    assert joined.parts == ((0, 300), (300, 500), (500, 700)) and joined.weights(0.5) == [0.5, 0.25, 0.25]
    for (low, high), table in zip(joined.parts, (REAL, SYNTHETIC, other), strict=True):
        part = joined.jobs[low:high]
        moved = part["submit_s"] - table["submit_s"]
        assert np.ptp(moved) < 1e-3 and moved[0] % (7 * 86400) == pytest.approx(0)
        for name in ("runtime_s", "estimate_s", "nodes"):
            assert np.array_equal(part[name], table[name])
    assert (np.diff(joined.jobs["submit_s"]) >= 0).all()


def test_share_1_has_no_log_jobs():
    joined = joined_table(REAL, SyntheticMix((SYNTHETIC,), 1.0))
    assert len(joined.jobs) == len(SYNTHETIC) and joined.weights(1.0) == [1.0]


def test_queues_are_kept_only_if_labels_are_equal():
    def queued(table, names):
        columns = {name: table[name] for name in table.columns} | {"queue": np.arange(len(table)) % 2}
        return JobTable(labels={"queue": names}, **columns)

    one, other = queued(REAL, ("short", "long")), queued(SYNTHETIC, ("short", "long"))
    assert joined_table(one, SyntheticMix((other,))).jobs.labels["queue"] == ("short", "long")
    assert "queue" not in joined_table(one, SyntheticMix((queued(SYNTHETIC, ("long", "short")),))).jobs


def test_episodes_stay_within_parts_at_given_shares():
    joined = joined_table(REAL, SyntheticMix((SYNTHETIC,), 0.25))
    vec = BatchVectorEnv(64, jobs=joined.jobs, cluster=MACHINE, episode_jobs=50, seed=0, queue_window=8)
    vec.set_episode_ranges(joined.parts, joined.weights(0.25))
    firsts = []
    for seed in range(20):
        vec.reset(seed=seed)
        firsts.append(vec.simulator.buffers.copies["next_first"].copy())
    first = np.concatenate(firsts)
    generated = first >= 300
    assert 0.2 < generated.mean() < 0.3
    assert first[~generated].max() <= 250 and first[generated].max() <= 450
    vec.set_episode_ranges(joined.parts, joined.weights(1.0))
    assert (vec.simulator.buffers.copies["next_first"] >= 300).all()  # from the next episode on
    vec.close()


def test_invalid_parts_and_weights_are_errors():
    vec = BatchVectorEnv(2, jobs=REAL, cluster=MACHINE, episode_jobs=50, queue_window=8)
    with pytest.raises(InputError, match="use shorter episodes"):
        vec.set_episode_ranges([(0, 40)], [1.0])
    with pytest.raises(InputError, match="give one weight per range"):
        vec.set_episode_ranges([(0, 100), (100, 300)], [0.5, 0.6])
    vec.close()
