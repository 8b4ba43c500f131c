"""Targets that carry an original, as the watch tells: what has to be given back when no variant wants it any more."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from heliotrope.api.v1alpha1.common import ORIGINAL_ANNOTATION
from heliotrope_operator.actuation.managed import SCALE
from heliotrope_operator.kinds.targets import ScaleTarget
from heliotrope_operator.resources import ResourceType
from heliotrope_operator.writes import FIELD_MANAGER


class Seen(NamedTuple):
    """What is remembered of a target that is watched; when it changes, its actuation looks again."""

    uid: str
    generation: int
    annotation: str | None
    scaled: bool
    """Whether our value is there."""


class HeldTargets:
    """By target: where its kind is served, for each that carries the annotation."""

    def __init__(self) -> None:
        self._held: dict[ScaleTarget, ResourceType] = {}
        self._seen: dict[ScaleTarget, Seen] = {}

    def __iter__(self) -> Iterator[ScaleTarget]:
        return iter(tuple(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, target: ScaleTarget) -> ResourceType | None:
        """Where its kind is served; None if it carries no original."""
        return self._held.get(target)

    def seen(self, target: ScaleTarget) -> Seen | None:
        """What was last seen of a target that is followed."""
        return self._seen.get(target)

    def put(self, target: ScaleTarget, resource: ResourceType) -> None:
        """It carries one now. Targets that are not watched are known from this alone."""
        self._held[target] = resource

    def drop(self, target: ScaleTarget) -> None:
        """It carries none any more, or is gone."""
        self._held.pop(target, None)

    def observe(
        self, target: ScaleTarget, resource: ResourceType, document: Mapping[str, Any] | None, *, wanted: bool
    ) -> bool:
        """Take in an event of a target; returns whether its actuation has to look.

        Args:
            target: what changed.
            resource: where its kind is served.
            document: the object; None if it is gone.
            wanted: whether a variant scales it. The rest of its changes is not followed otherwise.
        """
        seen = None if document is None else _seen(document)
        before = self._seen.get(target)
        carries = seen is not None and seen.annotation is not None
        if carries:
            self._held[target] = resource
        else:
            self._held.pop(target, None)
        if seen is not None and (wanted or carries):
            self._seen[target] = seen
        else:
            self._seen.pop(target, None)
        return (wanted or carries or before is not None) and seen != before


def _seen(document: Mapping[str, Any]) -> Seen:
    metadata = document["metadata"]
    entries = metadata.get("managedFields") or ()
    return Seen(
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation") or 0),
        annotation=(metadata.get("annotations") or {}).get(ORIGINAL_ANNOTATION),
        scaled=any(e.get("manager") == FIELD_MANAGER and e.get("subresource") == SCALE for e in entries),
    )
