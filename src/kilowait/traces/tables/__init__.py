"""Tables with named columns, CSV or Parquet: usual names are recognised, others are mapped by the caller.

ALCF's job-composite files and their published derivatives, NREL Eagle's, the table of Slurm's database and
kilowait's own files are tables whose names, units and codes are known here.
"""

from kilowait.traces.tables.aliases import csv_delimiter, is_table
from kilowait.traces.tables.load import own_parquet, read_csv, read_parquet

__all__ = ["csv_delimiter", "is_table", "own_parquet", "read_csv", "read_parquet"]
