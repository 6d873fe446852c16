"""Logs that may be published: pseudonyms, other dates, coarser values, and a check of who can still be told apart."""

from kilowait.traces.privacy.anonymize import Anonymized, anonymize, publish, refuse_source
from kilowait.traces.privacy.classes import Check, check_classes
from kilowait.traces.privacy.coarse import Step, parse_coarsening
from kilowait.traces.privacy.keys import Key, key_for, pseudonyms
from kilowait.traces.privacy.plan import Plan, make_plan, parse_names, parse_shift
from kilowait.traces.privacy.remedies import Remedy
from kilowait.traces.privacy.rules import META_RULES, RULES

__all__ = [
    "META_RULES",
    "RULES",
    "Anonymized",
    "Check",
    "Key",
    "Plan",
    "Remedy",
    "Step",
    "anonymize",
    "check_classes",
    "key_for",
    "make_plan",
    "parse_coarsening",
    "parse_names",
    "parse_shift",
    "pseudonyms",
    "publish",
    "refuse_source",
]
