"""Files and folders: checked reading, atomic writing, locks of output folders, and removal of unfinished files.

A file may have been damaged, written by another program, or written to harm the reader. The readers of this package
take bounded time and memory for the size of the file, and refuse everything else with an InputError that names the file
and the field. The readers are in their own modules, as some need NumPy or pyarrow; what is imported here needs the
standard library only.
"""

from kilowait.files.leftovers import partial_path, remove_leftovers
from kilowait.files.lock_file import STALE_S
from kilowait.files.output import (
    INSIDE_LOCK,
    atomic_file,
    check_held,
    create_parents,
    locks_output,
    output_lock,
    write_bytes,
    write_text,
)

__all__ = [
    "INSIDE_LOCK",
    "STALE_S",
    "atomic_file",
    "check_held",
    "create_parents",
    "locks_output",
    "output_lock",
    "partial_path",
    "remove_leftovers",
    "write_bytes",
    "write_text",
]
