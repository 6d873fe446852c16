"""Measurements and long checks that are run by hand."""
