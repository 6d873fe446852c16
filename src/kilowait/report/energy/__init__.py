"""Report sections on energy, CO2 and cost, for comparisons with energy accounting."""
