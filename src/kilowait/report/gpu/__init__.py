"""Report sections on GPUs, for runs on node-level clusters."""
