"""Training, evaluation and tuning of agents of every kind."""
