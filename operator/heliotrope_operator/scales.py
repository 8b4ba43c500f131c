"""Reads the `/scale` of anything that has one."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.api.v1alpha1.common import ScaleTargetRef
from heliotrope_operator.errors import ForbiddenError, NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.resources import ResourceType

KNOWN_FOR_S = 600.0
UNKNOWN_FOR_S = 30.0
"""How long the answer holds that a kind is there, or is not."""
REMEMBERED_KINDS = 256


class ScaleProblem(StrEnum):
    """Why a target cannot be read; the reason of the condition."""

    KIND_NOT_FOUND = "KindNotFound"
    NOT_SCALABLE = "NotScalable"
    TARGET_NOT_FOUND = "TargetNotFound"
    NOT_PERMITTED = "NotPermitted"


@dataclass(frozen=True, slots=True)
class Scale:
    """What `/scale` says, or why it says nothing."""

    replicas: int | None = None
    """Replicas that there are."""
    wanted: int | None = None
    """Replicas that there should be."""
    problem: ScaleProblem | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Where a kind is served, or why it cannot be scaled."""

    resource: ResourceType | None
    problem: ScaleProblem | None
    until: float
    """Loop time until which this counts."""


class Scales:
    """Finds out where a kind is served, and reads."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._found: OrderedDict[tuple[str, str], Found] = OrderedDict()

    async def read(self, namespace: str, ref: ScaleTargetRef) -> Scale:
        """The replicas that the target has.

        Raises:
            ApiError: if the server gives no answer; NotFound and Forbidden are answers.
        """
        found = await self.find(ref)
        if found.resource is None:
            return Scale(problem=found.problem)
        try:
            scale = await self._kube.get(found.resource.path(namespace, ref.name, "scale"))
        except NotFoundError:
            return Scale(problem=ScaleProblem.TARGET_NOT_FOUND)
        except ForbiddenError:
            return Scale(problem=ScaleProblem.NOT_PERMITTED)
        status, spec = scale.get("status") or {}, scale.get("spec") or {}
        return Scale(replicas=int(status.get("replicas", 0)), wanted=int(spec.get("replicas", 0)))

    async def find(self, ref: ScaleTargetRef) -> Found:
        """Where the kind of a target is served.

        Raises:
            ApiError: if the server gives no answer.
        """
        key = (ref.api_version, ref.kind)
        now = asyncio.get_running_loop().time()
        known = self._found.get(key)
        if known is not None and now < known.until:
            return known
        found = await self._discover(ref, now)
        self._found[key] = found
        self._found.move_to_end(key)
        if len(self._found) > REMEMBERED_KINDS:
            self._found.popitem(last=False)
        return found

    async def _discover(self, ref: ScaleTargetRef, now: float) -> Found:
        group, separator, version = ref.api_version.rpartition("/")
        try:
            served = await self._kube.get(f"/apis/{ref.api_version}" if separator else f"/api/{ref.api_version}")
        except NotFoundError:
            return Found(None, ScaleProblem.KIND_NOT_FOUND, now + UNKNOWN_FOR_S)
        resources = {each["name"]: each for each in served.get("resources", ())}
        for name, about in resources.items():
            if about["kind"] == ref.kind and "/" not in name and about["namespaced"]:
                if f"{name}/scale" not in resources:
                    return Found(None, ScaleProblem.NOT_SCALABLE, now + UNKNOWN_FOR_S)
                return Found(ResourceType(ref.kind, group, version, name), None, now + KNOWN_FOR_S)
        return Found(None, ScaleProblem.KIND_NOT_FOUND, now + UNKNOWN_FOR_S)
