"""Compiled steps of the environments: decisions, observations, rewards and state copies. Numbers and arrays only."""
