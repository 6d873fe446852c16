"""Every priority policy on three waiting jobs with an obvious order."""

from __future__ import annotations

import pytest

from kilowait.policies import POLICIES, policy, resolve
from tests.policies.waiting_jobs import order, seen, waiting

# No two fit ten nodes together, so they go one by one. Areas: 1200, 900, 880.
ABC = waiting((1, 6, 200), (2, 9, 100), (3, 8, 110))
# All at once, so that F1 to F4 differ by size and length alone.
TOGETHER = waiting((50, 6, 200), (50, 9, 100), (50, 8, 110))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", "ABC"),
        ("sjf", "BCA"),
        ("ljf", "ACB"),
        ("saf", "CBA"),
        ("saf_short", "BCA"),  # e n sqrt(e / 10): 5,367, 2,846, 2,919
        ("laf", "ABC"),
        ("smallest", "ACB"),
        ("largest", "BCA"),
        ("balance", "ABC"),
    ],
)
def test_policies_of_one_job_attribute(policy: str, expected: str) -> None:
    assert order(ABC, policy) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("f1", "ACB"),  # log10(e) n: 13.8, 18.0, 16.3
        ("f2", "CAB"),  # sqrt(e) n: 84.9, 90.0, 83.9
        ("f3", "CBA"),  # e n: 1200, 900, 880
        ("f4", "BCA"),  # e sqrt(n): 490, 300, 311
    ],
)
def test_f1_to_f4_among_simultaneous_jobs(policy: str, expected: str) -> None:
    assert order(TOGETHER, policy) == expected


@pytest.mark.parametrize("policy", ["f1", "f2", "f3", "f4"])
def test_f1_to_f4_favour_early_submissions(policy: str) -> None:
    """A submission ten times later outweighs any run time here: 870, 25600, 6.86 million and 530 thousand."""
    assert order(waiting((1, 10, 200), (90, 6, 90), (10, 9, 150)), policy) == "ACB"


def test_lxf_orders_by_expansion_factor() -> None:
    # at 100: (99 + 110) / 110 = 1.90, (98 + 100) / 100 = 1.98, (97 + 400) / 400 = 1.24
    assert order(waiting((1, 6, 110), (2, 10, 100), (3, 7, 400)), "lxf") == "BAC"


def test_wfp3_favours_large_jobs() -> None:
    # at 100: (99 / 100)^3 6 = 5.8, (98 / 110)^3 10 = 7.1, (97 / 400)^3 7 = 0.1; lxf would take A
    jobs = waiting((1, 6, 100), (2, 10, 110), (3, 7, 400))
    assert order(jobs, "wfp3") == "BAC"
    assert order(jobs, "lxf") == "ABC"


def test_unicef_favours_small_jobs() -> None:
    # at 100: 99 / (log2(6) 110) = 0.35, 98 / (log2(10) 100) = 0.30, 97 / (log2(7) 400) = 0.09
    jobs = waiting((1, 6, 110), (2, 10, 100), (3, 7, 400))
    assert order(jobs, "unicef") == "ABC"


def test_unicef_of_one_node_is_finite_and_grows_with_the_wait() -> None:
    rule = resolve("unicef")
    short, long = (rule.score(seen(nodes=1, estimate_s=10.0), now, rule.parameters) for now in (5.0, 50.0))
    assert long < short < 0


def test_time_dependent_policies_change_the_order() -> None:
    """At 100 the long job has waited 5 % of its length; at 2100 more than the short one that came meanwhile."""
    jobs = waiting((1, 10, 1000), (2, 10, 2000), (2050, 10, 2000), busy_s=100.0)
    assert order(jobs, "lxf") == "ABC"
    jobs = waiting((0, 10, 5000), (50, 10, 60), (4000, 10, 2000), busy_s=4100.0)
    assert order(jobs, "wfp3") == "BAC"


def test_priority_orders_by_the_column() -> None:
    jobs = waiting((1, 10, 9), (2, 10, 9), (3, 10, 9), (4, 10, 9), priority=[0, 1, 5, -2, 5])
    assert order(jobs, "priority") == "BDAC"
    assert order(waiting((1, 10, 9), (2, 10, 9)), "priority") == "AB"


def test_own_policies_read_the_priority() -> None:
    @policy
    def urgent(job, now):  # type: ignore[no-untyped-def]
        return -job.priority

    assert order(waiting((1, 10, 9), (2, 10, 9), priority=[0, 1, 5]), urgent) == "BA"


def test_random_order_depends_on_the_seed() -> None:
    jobs = waiting(*[(1.0, 10, 1.0)] * 8)
    drawn = [order(jobs, f"random:seed={seed}") for seed in range(6)]
    assert drawn == [order(jobs, f"random:seed={seed}") for seed in range(6)]
    assert len(set(drawn)) == 6
    assert order(jobs, "random") == drawn[0]
    assert all(sorted(one) == list("ABCDEFGH") for one in drawn)


def test_saf_short_uses_the_expected_inverse_run_time() -> None:
    quick = ABC.with_columns(expected_inverse_runtime=[1.0, 0.5, 0.05, float("nan")])
    assert order(quick, "saf_short") == "ACB"  # 1,697, 4,025, and 2,919 by its estimate


def test_every_priority_policy_is_tested() -> None:
    """The others are tested in test_fair_share, test_gpu and test_easy_plus."""
    here = {"fcfs", "sjf", "ljf", "saf", "saf_short", "laf", "smallest", "largest", "balance", "random"}
    here |= {"f1", "f2", "f3", "f4", "lxf", "wfp3", "unicef"}
    here |= {"priority"}
    placed = {"srtf", "srsf", "las", "qssf", "tiresias"}
    assert set(POLICIES) == here | placed | {"multifactor", "fair_share", "alcf", "alcf_wfp"} | {"easy+", "easy++"}
