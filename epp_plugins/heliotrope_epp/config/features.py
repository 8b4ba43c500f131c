"""What llm-d has and Heliotrope does not yet: named, so that a user is not told that it is a typing error."""

from collections.abc import Mapping, Sequence

from heliotrope_epp.config.problems import Problems, did_you_mean
from heliotrope_epp.config.schema import EndpointPickerConfig

FEATURE_GATES: Mapping[str, bool] = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
"""llm-d's gates with their defaults, which are also the only values that Heliotrope has."""

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}

UNSUPPORTED_TYPES = frozenset(
    {
        "active-request-scorer",
        "agent-identity",
        "anthropic-parser",
        "burst-prefix-cache-producer",
        "concurrency-detector",
        "context-length-aware",
        "data-parallel-profile-handler",
        "dcgm-data-source",
        "dcgm-extractor",
        "destination-endpoint-served-verifier",
        "disaggregatedset-rollout-screener",
        "edf-ordering-policy",
        "endpoint-attribute-filter",
        "endpoint-attribute-scorer",
        "endpoint-notification-source",
        "fcfs-ordering-policy",
        "global-strict-fairness-policy",
        "header-based-testing-filter",
        "header-label-affinity-scorer",
        "header-profile-handler",
        "inflight-load-producer",
        "k8s-notification-source",
        "latency-scorer",
        "latency-slo-admitter",
        "load-aware-scorer",
        "lora-affinity-scorer",
        "models-data-extractor",
        "models-data-source",
        "multicluster-approx-prefix-cache-producer",
        "multicluster-file-discovery",
        "multicluster-kv-cache-utilization-scorer",
        "multicluster-metrics-data-source",
        "multicluster-metrics-extractor",
        "multicluster-prefix-cache-scorer",
        "multicluster-queue-scorer",
        "multicluster-session-affinity-filter",
        "no-hit-lru-scorer",
        "p2p-source-producer",
        "passthrough-parser",
        "pd-profile-handler",
        "precise-prefix-cache-scorer",
        "predicted-latency-producer",
        "prefix-cache-affinity-filter",
        "priority-holdback-policy",
        "priority-then-time-eviction-order-policy",
        "probabilistic-admitter",
        "program-aware-fairness",
        "request-attribute-reporter",
        "round-robin-fairness-policy",
        "running-requests-size-scorer",
        "session-affinity-filter",
        "session-affinity-scorer",
        "session-id-producer",
        "sglanghttp-parser",
        "sheddable-eviction-filter",
        "slo-deadline-ordering-policy",
        "slo-headroom-tier-filter",
        "soft-reflective-ceiling-policy",
        "static-usage-limit-policy",
        "token-load-scorer",
        "token-producer",
        "tokenizer",
        "topology-affinity-filter",
        "topology-affinity-scorer",
        "topology-extractor",
        "utilization-detector",
        "utilization-filter",
        "vertexai-parser",
        "vllmgrpc-parser",
        "vllmhttp-parser",
        "weighted-random-picker",
    }
)
"""Plugin types of llm-d's router (v0.10) without a counterpart here."""


def check_feature_gates(gates: Sequence[str], problems: Problems) -> None:
    """Every gate must exist and have the one value that is supported."""
    for i, gate in enumerate(gates):
        path = f"featureGates[{i}]"
        name, equals, text = gate.partition("=")
        value = _BOOLEANS.get(text.strip().lower()) if equals else True
        if name not in FEATURE_GATES:
            problems.add(path, f"unknown feature gate {name}{did_you_mean(name, FEATURE_GATES)}")
        elif value is None:
            problems.add(path, f"{text!r} is not true or false")
        elif value is not FEATURE_GATES[name]:
            problems.add(path, f"{name}={str(value).lower()} is not supported by Heliotrope yet; remove it")


def check_flow_control(config: EndpointPickerConfig, problems: Problems) -> list[str]:
    """Refuse what would change which requests are served.

    Returns:
        Warnings about settings that llm-d too ignores while the gate is off.
    """
    flow = config.flow_control
    for path, detector in (
        ("saturationDetector", config.saturation_detector),
        ("flowControl.saturationDetector", None if flow is None else flow.saturation_detector),
    ):
        if detector is not None and detector.plugin_ref:
            problems.add(path, "saturation detectors are not supported by Heliotrope yet; remove it")
    if flow is None:
        return []
    if flow.enable_eviction:
        problems.add("flowControl.enableEviction", "eviction is not supported by Heliotrope yet; remove it")
    ignored = flow.model_fields_set - {"saturation_detector", "enable_eviction"}
    return ["flowControl is ignored, as its feature gate is off"] if ignored else []
