"""Tabular generators (CTGAN, CopulaGAN, TVAE, diffusion): jobs are sampled as independent rows and then ordered in
time.

`log_table` converts a log to rows and rows to jobs, `job_sequence` orders sampled rows in time, `encoding` encodes
columns for networks (with `gaussian_mixture`), and `generators` has the generators. The networks and their training are
in `ctgan`, `tvae` and `diffusion`. Implemented from the papers, without their code.
"""
