"""Writing of files: atomic replacement, locks of output folders, and removal of what a killed process left.

It has no dependencies beyond the standard library.
"""

from kilowait.files.atomic import atomic_file, write_bytes, write_text
from kilowait.files.leftovers import partial_path, remove_leftovers
from kilowait.files.locks import INSIDE_LOCK, STALE_S, check_held, locks_output, output_lock

__all__ = [
    "INSIDE_LOCK",
    "STALE_S",
    "atomic_file",
    "check_held",
    "locks_output",
    "output_lock",
    "partial_path",
    "remove_leftovers",
    "write_bytes",
    "write_text",
]
