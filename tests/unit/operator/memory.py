"""The API server's rules for objects, in memory and in virtual time: versions, conflicts, merge patches, outages.

It stands in where a test needs hours or races to pass in milliseconds; tests/contract/operator uses the real one.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope_operator.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from heliotrope_operator.kube import Page
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import ResourceType

Document = dict[str, Any]


class MemoryApi:
    """One store; `client` gives views of it that can be cut off."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self.version = 0
        self.requests: list[tuple[str, str]] = []

    def put(self, path: str, document: Document) -> Document:
        self.version += 1
        metadata = document.get("metadata", {}) | {"resourceVersion": str(self.version)}
        self.objects[path] = document | {"metadata": metadata}
        return self.objects[path]


class MemoryKube:
    """What `Kube` does, on a `MemoryApi`."""

    def __init__(self, api: MemoryApi, *, delay_s: float = 0.0, rng: random.Random | None = None) -> None:
        self.api = api
        self.failure: ApiError | None = None
        """Raised by every request while set."""
        self.denied: dict[str, ApiError] = {}
        """Raised by requests whose path starts so."""
        self._delay_s = delay_s
        self._rng = rng or random.Random(0)

    async def _enter(self, method: str, path: str) -> None:
        self.api.requests.append((method, path))
        if self._delay_s:
            await asyncio.sleep(self._rng.uniform(0, self._delay_s))
        if self.failure is not None:
            raise self.failure
        for start, error in self.denied.items():
            if path.startswith(start):
                raise error

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Document:
        await self._enter("GET", path)
        if path not in self.api.objects:
            raise NotFoundError(path)
        return self.api.objects[path]

    async def pages(self, resource: ResourceType, namespace: str = "") -> AsyncIterator[Page]:
        path = resource.path(namespace)
        await self._enter("GET", path)
        items = [
            document
            for document in self.api.objects.values()
            if document.get("kind") == resource.kind and namespace in ("", document["metadata"].get("namespace"))
        ]
        for start in range(0, max(len(items), 1), 2):
            yield Page(items[start : start + 2], str(self.api.version))

    async def create(self, path: str, document: Document) -> Document:
        await self._enter("POST", path)
        full = f"{path}/{document['metadata']['name']}"
        if full in self.api.objects:
            raise ConflictError(full)
        return self.api.put(full, document)

    async def replace(self, path: str, document: Document) -> Document:
        await self._enter("PUT", path)
        self._check(path, document)
        return self.api.put(path, document)

    async def merge(self, path: str, patch: Document) -> Document:
        await self._enter("PATCH", path)
        path = path.removesuffix("/status")
        self._check(path, patch)
        return self.api.put(path, apply_merge_patch(self.api.objects[path], patch))

    def _check(self, path: str, document: Document) -> None:
        if path not in self.api.objects:
            raise NotFoundError(path)
        wanted = document.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != self.api.objects[path]["metadata"]["resourceVersion"]:
            raise ConflictError(path)


def apply_merge_patch(old: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


UNAVAILABLE = UnavailableError("no answer")


class Held:
    """A leadership that is what the test says."""

    def __init__(self, *, held: bool = True) -> None:
        self.held = held
