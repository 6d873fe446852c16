"""Common parts of the signal readers: files, CSV tables, timestamps and units."""
