"""Other people's autoscalers: what they scale, between which bounds, and who moves those.

HorizontalPodAutoscalers, KEDA's ScaledObjects, and the VariantAutoscalings of llm-d's autoscaler.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliotrope.api.v1alpha1.common import ORIGINAL_ANNOTATION
from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.kinds.targets import ScaleTarget, actuates, actuation_key, group_of
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster

LLMD_MANAGED = "llm-d.ai/managed"
"""Annotation by which llm-d's autoscaler takes an HPA or a ScaledObject."""
KEDA_PAUSES = (
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
)
"""Annotations with which a user stops a ScaledObject, wholly or in one direction, while they say `true`."""
KEDA_PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
"""Annotation that does so, at a number of replicas, by being there."""
HPA_LEAST = 1
KEDA_LEAST = 0
"""`minReplicas` of an HPA and `minReplicaCount` of a ScaledObject where they are absent."""
KEDA_DEFAULT_MOST = 100
"""`maxReplicaCount` of a ScaledObject where it is absent."""


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """The part of an autoscaler that matters here."""

    target: ScaleTarget
    least: int = 0
    """Fewest replicas that it may choose; a ScaledObject's may be none."""
    most: int | None = None
    """Most replicas; None: not set, so its own default."""
    keda: str | None = None
    """Name of the ScaledObject that made this HPA."""
    llmd: bool = False
    """Whether llm-d's autoscaler moves it."""
    paused: str | None = None
    """Annotation with which a user has stopped it."""
    original: str | None = None
    """The annotation with what to put back, if Heliotrope holds its ceiling."""


def hpas() -> KindSpec[Autoscaler]:
    """How HorizontalPodAutoscalers are watched and remembered; found by `target`."""
    return _spec(Kind.HORIZONTAL_POD_AUTOSCALER, _read_hpa)


def scaled_objects() -> KindSpec[Autoscaler]:
    """How ScaledObjects are watched and remembered; found by `target`."""
    return _spec(Kind.SCALED_OBJECT, _read_scaled_object)


def variant_autoscalings() -> KindSpec[Autoscaler]:
    """How llm-d's VariantAutoscalings are watched and remembered; found by `target`."""
    return _spec(Kind.VARIANT_AUTOSCALING, _read_variant_autoscaling)


def _spec(kind: Kind, read: object) -> KindSpec[Autoscaler]:
    return KindSpec(
        kind,
        RESOURCES[kind],
        read,  # type: ignore[arg-type]
        indexes={"target": _target},
        dependents=_dependents,
        reconciled=False,
    )


def _target(_key: Key, scaler: Autoscaler) -> Iterable[Hashable]:
    return [scaler.target]


def _dependents(cluster: Cluster, _key: Key, before: Autoscaler | None, after: Autoscaler | None) -> set[Key]:
    if not actuates(cluster):
        return set()
    return {actuation_key(each.target) for each in (before, after) if each is not None}


def _read_hpa(key: Key, document: Document) -> Autoscaler:
    metadata, spec = document["metadata"], document.get("spec", {})
    annotations = metadata.get("annotations") or {}
    makers = [each["name"] for each in metadata.get("ownerReferences") or () if each.get("kind") == "ScaledObject"]
    return Autoscaler(
        target=_referenced(key, spec.get("scaleTargetRef") or {}),
        least=int(spec.get("minReplicas", HPA_LEAST)),
        most=_number(spec.get("maxReplicas")),
        keda=makers[0] if makers else (metadata.get("labels") or {}).get("scaledobject.keda.sh/name"),
        llmd=_managed(annotations),
        original=annotations.get(ORIGINAL_ANNOTATION),
    )


def _read_scaled_object(key: Key, document: Document) -> Autoscaler:
    spec, annotations = document.get("spec", {}), document["metadata"].get("annotations") or {}
    return Autoscaler(
        target=_referenced(key, spec.get("scaleTargetRef") or {}),
        least=int(spec.get("minReplicaCount", KEDA_LEAST)),
        most=_number(spec.get("maxReplicaCount")),
        llmd=_managed(annotations),
        paused=_paused(annotations),
        original=annotations.get(ORIGINAL_ANNOTATION),
    )


def _read_variant_autoscaling(key: Key, document: Document) -> Autoscaler:
    spec = document.get("spec", {})
    return Autoscaler(target=_referenced(key, spec.get("scaleTargetRef") or {}), llmd=True)


def _referenced(key: Key, ref: Document) -> ScaleTarget:
    """The target of a scaleTargetRef; KEDA and llm-d leave out what is a Deployment's."""
    api_version, kind = ref.get("apiVersion") or "apps/v1", ref.get("kind") or "Deployment"
    return ScaleTarget(key.namespace, group_of(api_version), kind, ref.get("name", ""))


def _managed(annotations: Document) -> bool:
    return annotations.get(LLMD_MANAGED) not in (None, "false")


def _paused(annotations: Document) -> str | None:
    if KEDA_PAUSED_REPLICAS in annotations:
        return KEDA_PAUSED_REPLICAS
    return next((name for name in KEDA_PAUSES if str(annotations.get(name)).lower() in ("true", "1", "t")), None)


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))
