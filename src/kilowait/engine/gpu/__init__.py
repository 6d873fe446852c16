"""The clock of clusters whose jobs are placed on single nodes; docs/gpu-engine.md has its rules."""
