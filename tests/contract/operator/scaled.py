"""Documents of what scales and is scaled, and what is seen of it."""

import json
from typing import Any

from tests.contract.operator.actuating import Actuating, managers
from tests.contract.operator.cluster import Api, Document, conditions

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.writes import FIELD_MANAGER

ORIGINAL = "heliotrope.io/original"


def policy(api: Api, actuation: str, **spec: Any) -> Document:
    return api.policy("green", autoscaling={"actuation": actuation}, **spec)


async def held_moved_and_given_back(api: Api, mode: Actuation, operator: Actuating) -> None:
    """Held at 5, moved to 2, given back."""
    api.apply(policy(api, mode.value))
    await operator.look()
    for wanted in (5, 2):
        operator.want("v", wanted, mode)
        await operator.settle()
    api.apply(policy(api, mode.value, enforcement="Advise"))
    await operator.settle()


def hpa(api: Api, name: str = "own", **spec: Any) -> Document:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": api.namespace},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine"}, "maxReplicas": 10}
        | spec,
    }


def scaled_object(api: Api, name: str = "so", **spec: Any) -> Document:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": api.namespace},
        "spec": {"scaleTargetRef": {"name": "engine"}, "triggers": [{"type": "cron", "metadata": {}}]} | spec,
    }


def with_metadata(document: Document, **metadata: Any) -> Document:
    return document | {"metadata": document["metadata"] | metadata}


def replicas(api: Api, kind: str = "Deployment", name: str = "engine") -> int:
    found: int = api.get(kind, name)["spec"]["replicas"]
    return found


def original(api: Api, kind: str = "Deployment", name: str = "engine") -> Document | None:
    text = api.get(kind, name)["metadata"].get("annotations", {}).get(ORIGINAL)
    return None if text is None else json.loads(text)


def said(api: Api, kind: str = "Scaled", variant: str = "v") -> tuple[str, str] | None:
    return conditions(api.get("WorkloadVariant", variant)).get(kind)


def message(api: Api, kind: str = "Scaled", variant: str = "v") -> str:
    found = api.get("WorkloadVariant", variant)["status"]["conditions"]
    return next(str(each["message"]) for each in found if each["type"] == kind)


def untouched(api: Api, kind: str = "Deployment", name: str = "engine") -> bool:
    document = api.get(kind, name)
    return original(api, kind, name) is None and FIELD_MANAGER not in managers(document)


def granted_world(api: Api) -> Api:
    """A granted namespace with a Deployment of three replicas, a pool, an enforced policy and a variant."""
    api.cluster.kubectl("label", "namespace", api.namespace, "heliotrope.io/allow-scaling=true")
    manifest = api.workload()
    manifest["spec"]["replicas"] = 3
    api.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    api.apply(api.pool(), policy(api, "Scale"), api.variant("v", maxReplicas=20))
    return api
