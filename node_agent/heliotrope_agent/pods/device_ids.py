"""What a device plugin's id says: which GPU, and whether all of it.

| id | whose | means |
|---|---|---|
| `GPU-<uuid>` | NVIDIA's device plugin | all of that GPU |
| `GPU-<uuid>::3` | the same, time slicing or MPS | a share of it |
| `MIG-GPU-<uuid>/1/0` | the same, drivers before R470 | a partition of it |
| `MIG-<uuid>` | the same | a partition of a GPU that the id does not name |
| `0`, `nvidia0` | plugins that count, GKE's | all of the GPU with the driver's index |
| `nvidia0/vgpu1`, `0::1` | the same | a share of it |
| `nvidia0/gi1` | GKE's | a partition of it |

An index is a guess: plugins may count otherwise than the driver. It does no harm, as a GPU is touched only if the
processes on it are the pod's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from heliotrope_agent.pods.claims import Claim

_INDEXED = re.compile(r"(?:nvidia)?(\d{1,4})(|/gi\d+|/vgpu\d+|::\d+)")
_OLD_MIG = re.compile(r"MIG-(GPU-[^/]+)/\d+/\d+")


class Part(StrEnum):
    """How much of a GPU."""

    WHOLE = "whole"
    SHARE = "share"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a claim is."""

    uuid: str | None
    """The GPU; None: it may be any of the node."""
    part: Part


def place(claim: Claim, uuids_by_index: Mapping[int, str]) -> Place | None:
    """Which GPU a claim is for, and how much of it.

    Args:
        claim: what a container was given.
        uuids_by_index: the driver's GPUs.

    Returns:
        None if it is for a GPU that the driver does not have (any more).
    """
    identifier = claim.device_id
    if claim.dynamic:
        return Place(None, Part.WHOLE)
    for uuid in uuids_by_index.values():
        if identifier == uuid:
            return Place(uuid, Part.WHOLE)
        if identifier.startswith(uuid) and not identifier[len(uuid)].isalnum():
            return Place(uuid, Part.SHARE)
    if old := _OLD_MIG.fullmatch(identifier):
        return Place(old[1], Part.PARTITION) if old[1] in uuids_by_index.values() else None
    if identifier.startswith("MIG-"):
        return Place(None, Part.PARTITION)
    if identifier.startswith("GPU-"):
        return None
    indexed = _INDEXED.fullmatch(identifier)
    if indexed is None:
        return Place(None, Part.WHOLE)
    part = Part.WHOLE if not indexed[2] else Part.PARTITION if indexed[2].startswith("/gi") else Part.SHARE
    return Place(uuids_by_index.get(int(indexed[1])), part)
