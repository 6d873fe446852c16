"""Anonymization of job logs: pseudonyms, date shifts, generalization, and a k-anonymity check."""

from kilowait.traces.anonymize.anonymize import (
    AnonymizedLog,
    PseudonymKey,
    anonymize,
    check_output_path,
    key_for,
    pseudonyms,
    publish,
    saved_key,
)
from kilowait.traces.anonymize.k_anonymity import AnonymityCheck, SuggestedRule, check_k_anonymity
from kilowait.traces.anonymize.plan import (
    COLUMN_RULES,
    META_RULES,
    AnonymizationPlan,
    RoundingStep,
    make_plan,
    parse_coarsening,
    parse_names,
    parse_shift,
)

__all__ = [
    "META_RULES",
    "COLUMN_RULES",
    "AnonymizedLog",
    "AnonymityCheck",
    "PseudonymKey",
    "AnonymizationPlan",
    "SuggestedRule",
    "RoundingStep",
    "anonymize",
    "check_k_anonymity",
    "key_for",
    "make_plan",
    "parse_coarsening",
    "parse_names",
    "parse_shift",
    "pseudonyms",
    "publish",
    "saved_key",
    "check_output_path",
]
