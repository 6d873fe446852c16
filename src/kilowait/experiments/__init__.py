"""From a scenario to a run folder; rules side by side; and how fast the clock is.

Nothing is imported here, so that a run folder can be opened, and a log described, without the engine.
"""
