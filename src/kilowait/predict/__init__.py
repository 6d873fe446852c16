"""Guesses before the clock starts: how long a job will take, what it will draw, how sure that is."""
