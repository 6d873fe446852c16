"""Report sections on agents: training curves, evaluation against other policies, and feature attribution."""
