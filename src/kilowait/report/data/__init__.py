"""Data of the pages, without markup and without matplotlib: a module for each topic."""
