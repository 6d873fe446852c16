"""The clock of clusters whose jobs are placed on single nodes; docs/placing.md has its rules."""
