"""`decode-filter`: endpoints that decode."""

from heliotrope_epp.datalayer.endpoint import ROLE_LABEL
from heliotrope_epp.plugins.filters.labels import LabelFilter

DECODE_FILTER = "decode-filter"
DECODE_ROLES = ("decode", "prefill-decode", "both", "encode-prefill-decode")
"""Values of `llm-d.ai/role` that include decoding."""


def decode_filter() -> LabelFilter:
    """Keeps endpoints with a role that decodes, and those without a role."""
    return LabelFilter(ROLE_LABEL, DECODE_ROLES, allow_missing=True)
