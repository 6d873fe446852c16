"""The compiled part of the clock. Numbers and arrays only: no words, no files, no formulas for energy."""
