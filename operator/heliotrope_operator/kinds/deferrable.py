"""What a Job or a Workload says of being deferred: the label that opts in, and the annotations of Heliotrope."""

from collections.abc import Mapping
from typing import Any

PREFIX = "heliotrope.io/"
OPT_IN = f"{PREFIX}deferrable"
"""Label; only the value `true` opts in."""
REGION = f"{PREFIX}region"
"""Label or annotation: the RegionProfile where the pods will run."""


def opted_in(metadata: Mapping[str, Any]) -> bool:
    """Whether the object was handed over."""
    return (metadata.get("labels") or {}).get(OPT_IN) == "true"


def own_annotations(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Annotations of Heliotrope, sorted; the label `heliotrope.io/region` counts as the annotation of that name."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    region = {REGION: labels[REGION]} if REGION in labels else {}
    return tuple(sorted(each for each in (region | annotations).items() if each[0].startswith(PREFIX)))
