"""Energy accounting: exact energy, CO2 and cost of a run."""

from kilowait.energy.accounting.compute import account_energy
from kilowait.energy.accounting.job_power import lower_bound_kwh
from kilowait.energy.accounting.result import ENERGY_STATES, EnergyAccounts, EnergyRow, Hourly, PowerBins

__all__ = ["ENERGY_STATES", "EnergyAccounts", "EnergyRow", "Hourly", "PowerBins", "account_energy", "lower_bound_kwh"]
