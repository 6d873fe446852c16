"""What a page says and draws of energy, CO2 and cost, where the runs of a contest have a record of what they drew."""
