"""Networks that generate tables, on jobs: every job is a row, drawn apart from the others, and then put in time.

`table` turns a log into rows and rows into jobs, `ordering` puts drawn rows one after another, `encoding` turns
columns into numbers for networks (with `mixture`), and `models` has the generators. What each network is and how it
learns is in `ctgan`, `tvae` and `diffusion`. Written from the papers; no code of theirs is in it.
"""
