"""Scheduling policies, and simulation with them."""

from kilowait.policies.compile import policy
from kilowait.policies.registry import POLICIES, as_policy, describe_policies, resolve
from kilowait.policies.simulation import simulate

__all__ = ["POLICIES", "as_policy", "describe_policies", "policy", "resolve", "simulate"]
