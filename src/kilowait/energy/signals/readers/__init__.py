"""What all readers of signals need: files and their cells, times, units, plain columns."""
