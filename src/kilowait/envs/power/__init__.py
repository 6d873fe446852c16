"""`kilowait/Energy-v0`: job choice, DVFS, load shifting and node sleep."""
