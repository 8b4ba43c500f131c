"""A small cluster as `heliotrope status` reads it: two regions, two policies, three variants, Jobs and nodes."""

from datetime import UTC, datetime
from typing import Any

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy, NodePower, RegionProfile, WorkloadVariant
from heliotrope_cli.status_read import PickerText, Snapshot, WaitingJob

NOW = datetime(2026, 3, 1, 12, 20, tzinfo=UTC)
SINCE = "2026-03-01T10:00:00Z"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def resource(kind: str, name: str, spec: dict[str, Any], status: dict[str, Any] | None, namespace: str | None) -> Any:
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    document = {"apiVersion": "heliotrope.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    return parse(document | ({} if status is None else {"status": status}))


def region(name: str, zone: str, status: dict[str, Any] | None) -> RegionProfile:
    spec = {"zone": zone, "source": {"file": {"path": "es.csv", "valueColumn": "g"}}}
    found = resource("RegionProfile", name, spec, status, None)
    assert isinstance(found, RegionProfile)
    return found


def policy(name: str, pool: str, enforcement: str, status: dict[str, Any] | None) -> CarbonPolicy:
    spec = {
        "targetRefs": [{"name": pool}],
        "slo": {"ttft": "1s", "tpot": "50ms"},
        "enforcement": enforcement,
        "holdoutPercent": 5,
    }
    found = resource("CarbonPolicy", name, spec, status, "llm")
    assert isinstance(found, CarbonPolicy)
    return found


def variant(name: str, status: dict[str, Any] | None, **spec: Any) -> WorkloadVariant:
    given = {
        "model": "llama",
        "endpointSelector": {"matchLabels": {"app": name}},
        "accelerator": {"type": "H100"},
        "regionRef": {"name": "spain"},
    } | spec
    found = resource("WorkloadVariant", name, given, status, "llm")
    assert isinstance(found, WorkloadVariant)
    return found


def node(name: str, status: dict[str, Any] | None, *, enforcement: str = "Enforce") -> NodePower:
    spec = {"enforcement": enforcement, "intents": [{"namespace": "llm", "variant": "es", "smClockMhz": 1200}]}
    found = resource("NodePower", name, spec, status, None)
    assert isinstance(found, NodePower)
    return found


def reading(value: str, time: str, **more: Any) -> dict[str, Any]:
    return {
        "value": value,
        "time": time,
        "source": "electricityMaps",
        "signalType": "average",
        "emissionFactor": "lifecycle",
    } | more


SAVED = """\
# TYPE heliotrope_arm_requests counter
heliotrope_arm_requests_total{arm="policy"} 9500.0
heliotrope_arm_requests_total{arm="holdout"} 500.0
heliotrope_energy_joules_total{line="request",region="es",variant="v",model="m\\"}",tenant="",arm="policy"} 760000.0
heliotrope_energy_joules_total{line="request",region="es",variant="v",model="m",tenant="",arm="holdout"} 50000.0
heliotrope_energy_joules_total{line="idle",region="es",variant="v",model="m",tenant="",arm=""} 9e9
heliotrope_grams_co2e_total{line="request",arm="policy",signal_type="average",emission_factor="lifecycle"} 19000.0
heliotrope_grams_co2e_total{line="request",arm="holdout",signal_type="average",emission_factor="lifecycle"} 2000.0
heliotrope_unmeasured_requests_total{region="es",variant="v",model="m",tenant="",arm="policy"} 0.0
"""


def snapshot() -> Snapshot:
    """Everything there is to see at least once."""
    raised = "spec.replicas of Deployment es is 4: Raise from 3 to 4 replicas: it carries 12 of 14 requests/s."
    return Snapshot(
        now_unix_s=NOW.timestamp(),
        regions=(
            region("poland", "PL", {"intensity": reading("712.4", "2026-03-01T08:00:00Z", estimated=True)}),
            region(
                "spain",
                "ES",
                {
                    "intensity": reading("141", "2026-03-01T12:10:00Z"),
                    "forecastError": {
                        "horizonHours": 24,
                        "meanAbsoluteError": "14.25",
                        "baselineMeanAbsoluteError": "19",
                        "samples": 720,
                    },
                },
            ),
            region("sweden", "SE", None),
        ),
        policies=(
            policy(
                "green",
                "llama",
                "Enforce",
                {
                    "conditions": [
                        condition("Accepted", "True", "Accepted"),
                        condition("Enforced", "True", "Enforced"),
                        condition("SignalsFresh", "False", "SignalStale", "poland is stale"),
                        condition("DemandKnown", "True", "DemandKnown"),
                        condition("PowerManaged", "True", "PowerManaged"),
                        condition("DemandAnswered", "True", "EventAnswered"),
                    ],
                    "demandResponse": {"event": "peak", "since": SINCE, "end": "2026-03-01T14:00:00Z", "watts": 12000},
                },
            ),
            policy("tried", "mixtral", "Advise", {"conditions": [condition("Enforced", "False", "AdviseOnly")]}),
        ),
        variants=(
            variant(
                "es",
                {
                    "desiredReplicas": 4,
                    "currentReplicas": 3,
                    "activeEngines": 3,
                    "conditions": [
                        condition("Scaled", "True", "Scaled", raised),
                        condition("Conflicted", "False", "NoConflict"),
                    ],
                    "chosenPower": [{"role": "both", "smClockMhz": 1200, "watts": 450, "reason": "LeastEnergy"}],
                },
            ),
            variant(
                "pl",
                {
                    "currentReplicas": 2,
                    "conditions": [
                        condition("Scaled", "False", "Conflicted", "left to HorizontalPodAutoscaler own"),
                        condition("Conflicted", "True", "Autoscaler"),
                    ],
                    "chosenPower": [{"role": "both", "smClockMhz": 990, "enforcement": "Advise"}],
                },
            ),
            variant("new", None, role="decode"),
        ),
        node_powers=(
            node(
                "gpu-1",
                {
                    "managedGpus": 8,
                    "heartbeatTime": "2026-03-01T12:19:20Z",
                    "conditions": [condition("Applied", "True", "Applied"), condition("LeaseValid", "True", "Valid")],
                },
            ),
            node("gpu-2", None),
            node(
                "gpu-3",
                {
                    "managedGpus": 4,
                    "heartbeatTime": "2026-03-01T12:08:00Z",
                    "conditions": [condition("Applied", "True", "Applied"), condition("LeaseValid", "True", "Valid")],
                },
            ),
        ),
        jobs=(
            WaitingJob("batch", "train", "2026-03-01T15:00:00Z", "2026-03-02T00:00:00Z", "cleaner"),
            WaitingJob("batch", "later", None, None, None),
        ),
        pickers=(
            PickerText("pool llm/llama, Service epp", SAVED, others=1),
            PickerText("pool llm/mixtral", None, "there is no such InferencePool"),
        ),
        problems=("Nodes are unknown",),
    )
