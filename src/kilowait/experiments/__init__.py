"""From scenarios to run folders: simulation, comparison, training, prediction and synthetic workloads.

Nothing is imported here, so that a run folder can be opened, and a log described, without the engine.
"""
