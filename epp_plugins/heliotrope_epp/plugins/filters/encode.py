"""`encode-filter`: endpoints that encode images for others."""

from heliotrope_epp.datalayer.endpoint import ROLE_LABEL
from heliotrope_epp.plugins.filters.labels import LabelFilter

ENCODE_FILTER = "encode-filter"
ENCODE_ROLES = ("encode", "encode-prefill", "encode-prefill-decode")
"""Values of `llm-d.ai/role` that include encoding for others."""


def encode_filter() -> LabelFilter:
    """Keeps endpoints with a role that encodes; those without a role do not encode for others."""
    return LabelFilter(ROLE_LABEL, ENCODE_ROLES, allow_missing=False)
