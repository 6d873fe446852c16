"""Networks as policies: how they play each kind of machine, told a preference or not, and what they reach."""
