"""`prefill-filter`: endpoints that prefill."""

from heliotrope_epp.datalayer.endpoint import ROLE_LABEL
from heliotrope_epp.plugins.filters.labels import LabelFilter

PREFILL_FILTER = "prefill-filter"
PREFILL_ROLES = ("prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode")
"""Values of `llm-d.ai/role` that include prefilling for others."""


def prefill_filter() -> LabelFilter:
    """Keeps endpoints with a role that prefills; those without a role do not prefill for others."""
    return LabelFilter(ROLE_LABEL, PREFILL_ROLES, allow_missing=False)
