"""Every change that the operator makes to the cluster goes through here, and only while no other replica may write."""

from typing import Any, Protocol

from heliotrope_operator.errors import NotLeaderError
from heliotrope_operator.kube import Kube

FIELD_MANAGER = "heliotrope-operator"
"""Owner of the fields that are applied server-side."""

Document = dict[str, Any]


class Leadership(Protocol):
    """Says whether this replica may write."""

    @property
    def held(self) -> bool:
        """True while no other replica can be the leader."""
        ...


class Writes:
    """The writing half of `Kube`; each method raises NotLeaderError when this replica may not write.

    Events and the Lease itself are written by whoever has something to tell.
    """

    def __init__(self, kube: Kube, leadership: Leadership) -> None:
        self.kube = kube
        """For reads."""
        self._leadership = leadership

    async def create(self, path: str, document: Document) -> Document:
        """See `Kube.create`."""
        self._may_write()
        return await self.kube.create(path, document)

    @property
    def allowed(self) -> bool:
        """Whether this replica may write now."""
        return self._leadership.held

    async def merge(self, path: str, patch: Document) -> Document:
        """See `Kube.merge`. With `metadata.resourceVersion` in the patch it holds for that version only."""
        self._may_write()
        return await self.kube.merge(path, patch)

    async def set(self, path: str, patch: Document) -> Document:
        """The same for fields of other people's objects: they become those of `FIELD_MANAGER`."""
        self._may_write()
        return await self.kube.merge(path, patch, manager=FIELD_MANAGER)

    async def apply(self, path: str, document: Document, *, force: bool = False) -> Document:
        """See `Kube.apply`; as `FIELD_MANAGER`."""
        self._may_write()
        return await self.kube.apply(path, document, manager=FIELD_MANAGER, force=force)

    async def delete(self, path: str, *, uid: str | None = None) -> None:
        """See `Kube.delete`."""
        self._may_write()
        await self.kube.delete(path, uid=uid)

    def _may_write(self) -> None:
        if not self.allowed:
            raise NotLeaderError("another replica may be writing")
