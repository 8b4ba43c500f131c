"""Fields of other people's objects: how one is read, taken, written and given back.

Taking: the original goes into an annotation of the same object before or with the first change. Giving back: the value
first, while the annotation still says what it was; then annotation and ownership go in one write. After a crash between
any two of these writes the object tells how to go on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliotrope.api.v1alpha1.common import ORIGINAL_ANNOTATION
from heliotrope.errors import InvalidInputError
from heliotrope_operator.actuation import managed
from heliotrope_operator.actuation.managed import Owner
from heliotrope_operator.actuation.original import Original, read
from heliotrope_operator.errors import NotFoundError
from heliotrope_operator.kinds.targets import ScaleTarget
from heliotrope_operator.resources import ResourceType
from heliotrope_operator.writes import FIELD_MANAGER, Writes

_log = logging.getLogger(__name__)

REPLICAS = "spec.replicas"
MAX_REPLICAS = "spec.maxReplicas"
MAX_REPLICA_COUNT = "spec.maxReplicaCount"
_LEAST = {MAX_REPLICAS: "minReplicas", MAX_REPLICA_COUNT: "minReplicaCount"}
_LEAST_CEILING = 1
"""An HPA's maxReplicas is at least one, and so is a maxReplicaCount, of which KEDA makes one."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field that can be held."""

    resource: ResourceType
    namespace: str
    name: str
    path: str
    """`REPLICAS` stands for what `/scale` sets, whatever the kind calls it."""

    def __str__(self) -> str:
        return f"{self.path} of {self.resource.kind} {self.name}"

    @property
    def scaled(self) -> bool:
        """Whether it is read and written through `/scale`."""
        return self.path == REPLICAS

    @property
    def action(self) -> str:
        """What changing it is called in metrics."""
        return "scale" if self.scaled else "ceiling"

    @property
    def target(self) -> ScaleTarget:
        """Its object."""
        return ScaleTarget(self.namespace, self.resource.group, self.resource.kind, self.name)

    def at(self, subresource: str = "") -> str:
        """Where the object is in the API."""
        return self.resource.path(self.namespace, self.name, subresource)


@dataclass(frozen=True, slots=True)
class Found:
    """A field as it is."""

    uid: str
    version: str
    value: int | None
    """None: not set."""
    annotation: str | None
    original: Original | None
    """What the annotation says; None if there is none, or nothing in it can be read."""
    ours: bool
    """Whether the value is the one that we wrote last."""
    others: tuple[Owner, ...]
    """Who else owns the field with this value."""
    path: managed.Path
    entries: managed.Entries
    least: int
    """Below this the field may not go: an autoscaler's own minimum, and one where that is zero."""

    @property
    def restorable(self) -> int | None:
        """The value that giving it back would leave: the original if the value is ours alone, else the one there is."""
        if self.original is None or not self.ours or self.others:
            return self.value
        return None if self.original.value is None else max(self.original.value, self.least)


class Fields:
    """Reads and writes them. Every write holds only for the version that was read."""

    def __init__(self, writes: Writes, *, operator: str, unix_clock: Callable[[], float]) -> None:
        """`operator` is the namespace of this operator, which goes into annotations."""
        self._writes = writes
        self._operator = operator
        self._unix_clock = unix_clock

    async def find(self, field: Field) -> Found | None:
        """A field as it is; None if its object is gone.

        Raises:
            ApiError: as for all requests.
        """
        try:
            document = await self._writes.kube.get(field.at())
            scale = await self._writes.kube.get(field.at(managed.SCALE)) if field.scaled else None
        except NotFoundError:
            return None
        return _found(field, document, scale)

    async def take(
        self, field: Field, found: Found, value: int, *, variant: str, remembered: str | None = None
    ) -> Found:
        """Make a field so, and save what it was unless that is saved already.

        The original is the last value that somebody else set: it stays while the value is ours, and is taken anew when
        somebody has changed it meanwhile.

        Args:
            field: which.
            found: as it is.
            value: what it should be.
            variant: name of the WorkloadVariant that wants it.
            remembered: the annotation as it was, should somebody have removed it while the value is ours.

        Raises:
            ConflictError: if the object has changed meanwhile.
            ApiError: as for all requests.
        """
        saved = found.annotation or remembered if found.ours else None
        if saved is None:
            original = found.original
            if original is None or original.value != found.value:
                original = self._original(field, found, variant)
            saved = original.text()
        if not field.scaled:
            return await self._apply(field, found, saved, value)
        if saved != found.annotation:
            found = await self._apply(field, found, saved, None)
        if found.value != value:
            await self._scale(field, found, value)
        return found

    def _original(self, field: Field, found: Found, variant: str) -> Original:
        return Original(
            field=field.path,
            value=found.value,
            variant=variant,
            operator=self._operator,
            taken_unix_s=self._unix_clock(),
            owners=found.others,
        )

    async def give_back(self, field: Field, found: Found) -> bool:
        """Put back the original and let go. A value that somebody else has set meanwhile stays.

        Returns:
            Whether there was anything to give back.

        Raises:
            ConflictError: if the object has changed meanwhile.
            ApiError: as for all requests.
        """
        held = any(entry.get("manager") == FIELD_MANAGER for entry in found.entries)
        if found.annotation is None and not held:
            return False
        original = found.original
        if original is None:
            _log.warning("%s: the annotation %s is gone or cannot be read; its value stays", field, ORIGINAL_ANNOTATION)
        elif (value := found.restorable) != found.value:
            if field.scaled:
                assert value is not None, "replicas are always set"
                await self._scale(field, found, value)
            else:
                assert found.annotation is not None, "an original comes from it"
                await self._apply(field, found, found.annotation, value)
            again = await self.find(field)
            if again is None or again.uid != found.uid:
                return True
            found = again
        await self._let_go(field, found, () if original is None else original.owners)
        return True

    async def _apply(self, field: Field, found: Found, annotation: str, value: int | None) -> Found:
        """Apply the annotation, and with it the field where it is not behind `/scale`; None: the field is not set."""
        document: Document = {
            "apiVersion": field.resource.api_version,
            "kind": field.resource.kind,
            "metadata": _named(field, found) | {"annotations": {ORIGINAL_ANNOTATION: annotation}},
        }
        if not field.scaled and value is not None:
            outer, _, inner = field.path.partition(".")
            document[outer] = {inner: value}
        applied = await self._writes.apply(field.at(), document, force=True)
        return _found(field, applied, {"spec": {"replicas": found.value}} if field.scaled else None)

    async def _scale(self, field: Field, found: Found, replicas: int) -> None:
        document = {"metadata": _named(field, found), "spec": {"replicas": replicas}}
        path = field.at(managed.SCALE)
        if "." in field.resource.group:
            # Custom resources: the API server answers 500 to an apply at their /scale (seen up to 1.34).
            await self._writes.set(path, document)
        else:
            typed = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
            await self._writes.apply(path, typed | document, force=True)

    async def _let_go(self, field: Field, found: Found, heirs: tuple[Owner, ...]) -> None:
        """Remove the annotation and our ownership at once; the value stays and belongs to whoever had it before."""
        others = () if found.others else heirs
        patch = {
            "metadata": {
                "uid": found.uid,
                "resourceVersion": found.version,
                "annotations": {ORIGINAL_ANNOTATION: None},
                "managedFields": managed.without(found.entries, FIELD_MANAGER, found.path, others),
            }
        }
        await self._writes.set(field.at(), patch)


def _named(field: Field, found: Found) -> Document:
    return {"namespace": field.namespace, "name": field.name, "uid": found.uid, "resourceVersion": found.version}


def _found(field: Field, document: Document, scale: Document | None) -> Found:
    metadata, spec = document["metadata"], document.get("spec", {})
    entries = metadata.get("managedFields") or ()
    annotation = (metadata.get("annotations") or {}).get(ORIGINAL_ANNOTATION)
    original: Original | None = None
    if annotation is not None:
        try:
            original = read(annotation)
        except InvalidInputError as error:
            _log.warning("%s: %s", field, error)
    path = managed.path_of(field.path)
    value: int | None
    if scale is not None:
        value = int(scale.get("spec", {}).get("replicas", 0))
        path = managed.scaled_path(entries) or path
    else:
        written = spec.get(field.path.partition(".")[2])
        value = None if written is None else int(written)
    owners = managed.owners(entries, path)
    return Found(
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        value=value,
        annotation=annotation,
        original=original,
        ours=any(owner.manager == FIELD_MANAGER for owner in owners),
        others=tuple(owner for owner in owners if owner.manager != FIELD_MANAGER),
        path=path,
        entries=entries,
        least=0 if field.scaled else max(int(spec.get(_LEAST[field.path], 0)), _LEAST_CEILING),
    )
