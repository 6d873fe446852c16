"""Files from other people: opened without following links, and checked before their contents are used.

A file may have been damaged, written by another program, or written to harm the reader. The readers of this package
take bounded time and memory for the size of the file, and refuse everything else with an InputError that names the file
and the field.
"""
