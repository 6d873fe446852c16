"""CSV and Parquet tables with named columns: usual names are recognised, others are mapped by the caller.

The column names, units and codes of ALCF's job-composite files and their published derivatives, NREL Eagle's table,
the job table of Slurm's database and kilowait's own files are known.
"""

from kilowait.traces.tables.aliases import csv_delimiter, is_table
from kilowait.traces.tables.header import header_names, known_names, own_names
from kilowait.traces.tables.table_reader import own_parquet, read_csv, read_parquet

__all__ = [
    "csv_delimiter",
    "header_names",
    "is_table",
    "known_names",
    "own_names",
    "own_parquet",
    "read_csv",
    "read_parquet",
]
