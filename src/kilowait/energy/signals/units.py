"""Unit detection from column headers, and conversion factors, for carbon intensity and prices."""

from __future__ import annotations

import re

from kilowait.errors import InputError

__all__ = [
    "INTENSITY_UNIT",
    "canonical_unit",
    "find_intensity_unit",
    "find_price_unit",
    "intensity_factor",
    "price_factor",
]

INTENSITY_UNIT = "g/kWh"
POUND_G = 453.59237

_GRAMS = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": POUND_G, "lbs": POUND_G}
_KWH = {"kwh": 1.0, "mwh": 1e3}
_MASS = re.compile(
    r"(?<![a-z])(kg|g|t|lbs?)[\s_]*(?:co[2₂]?[\s_-]*(?:e|eq|eqv|equiv\w*)?\.?)?[\s_]*(?:/|per)[\s_]*(kwh|mwh)(?![a-z])",
    re.IGNORECASE,
)
_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "US$": "USD"}
_PRICE = re.compile(r"(US\$|[$€£]|[A-Z]{3})\s*(?:/|per|_per_)\s*(kwh|mwh)(?![a-z])", re.IGNORECASE)


def find_intensity_unit(words: str) -> str | None:
    """The unit of carbon intensity in a header; None if there is none.

    >>> [find_intensity_unit(words) for words in ("Carbon Intensity gCO₂eq/kWh (LCA)", "lbs_co2_per_mwh", "MOER")]
    ['g/kWh', 'lb/MWh', None]
    """
    found = _MASS.search(words)
    if found is None:
        return None
    mass = found[1].lower().replace("lbs", "lb")
    return f"{mass}/{'kWh' if found[2].lower() == 'kwh' else 'MWh'}"


def intensity_factor(unit: str) -> float:
    """The factor from this unit to g/kWh.

    >>> intensity_factor("lb/MWh"), intensity_factor("kgCO2/kWh")
    (0.45359237, 1000.0)
    """
    found = _MASS.fullmatch(unit.strip())
    if found is None:
        raise InputError(
            f"unknown unit of carbon intensity {unit!r}; known are g, kg, t and lb of CO2 per kWh or MWh, such as "
            "g/kWh or lb/MWh"
        )
    return _GRAMS[found[1].lower()] / _KWH[found[2].lower()]


def find_price_unit(words: str) -> str | None:
    """The unit of a price in a header; None if there is none.

    >>> find_price_unit("Price (USD/MWh)"), find_price_unit("day-ahead €/kWh"), find_price_unit("price")
    ('USD/MWh', 'EUR/kWh', None)
    """
    found = _PRICE.search(words)
    if found is None:
        return None
    currency = _SIGNS.get(found[1].upper(), found[1].upper())
    return f"{currency}/{'kWh' if found[2].lower() == 'kwh' else 'MWh'}"


def price_factor(unit: str) -> tuple[float, str]:
    """The factor from this price unit to per MWh, and the currency.

    >>> price_factor("EUR/kWh"), price_factor("$/MWh")
    ((1000.0, 'EUR'), (1.0, 'USD'))
    """
    named = find_price_unit(unit)
    if named is None or _PRICE.fullmatch(unit.strip()) is None:
        raise InputError(f"unknown unit of price {unit!r}; write a currency per kWh or MWh, such as EUR/MWh or $/kWh")
    currency, energy = named.split("/")
    return (1e3 if energy == "kWh" else 1.0), currency


def canonical_unit(unit: str) -> tuple[float, str]:
    """The factor to the unit that kilowait uses internally (g/kWh, currency per MWh), and that unit.

    >>> canonical_unit("lb/MWh"), canonical_unit("EUR/kWh")
    ((0.45359237, 'g/kWh'), (1000.0, 'EUR/MWh'))
    """
    if find_intensity_unit(unit) is not None:
        return intensity_factor(unit), INTENSITY_UNIT
    if find_price_unit(unit) is not None:
        factor, currency = price_factor(unit)
        return factor, f"{currency}/MWh"
    raise InputError(f"unknown unit {unit!r}; known are for example g/kWh, lb/MWh, EUR/MWh and $/kWh")
