"""Documents of the custom resources that together set every field, and a helper that changes them."""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]

REMOVED = object()
"""As a value in `changed`: takes the field away."""

_SECRET = {"name": "keys", "key": "token"}
_TIME = "2022-06-01T00:00:00Z"
_REPLAY = {"seriesStart": _TIME, "wallStart": "2026-01-01T00:00:00Z", "speed": 600}
_CONDITION = {
    "type": "Accepted",
    "status": "True",
    "observedGeneration": 3,
    "lastTransitionTime": _TIME,
    "reason": "Accepted",
    "message": "The policy holds.",
}

SOURCES: dict[str, Document] = {
    "static": {"intensityGramsPerKwh": "120.5"},
    "electricityMaps": {
        "credentialsSecretRef": _SECRET,
        "baseUrl": "https://api.electricitymaps.com",
        "apiVersion": "v4",
        "dataCenter": {"provider": "gcp", "region": "europe-west1"},
        "disableEstimations": True,
        "forecastHours": 48,
    },
    "wattTime": {
        "usernameSecretRef": _SECRET,
        "passwordSecretRef": _SECRET,
        "baseUrl": "https://api.watttime.org",
        "forecastHours": 24,
    },
    "neso": {"baseUrl": "https://api.carbonintensity.org.uk", "regionId": 13},
    "energyCharts": {"baseUrl": "https://api.energy-charts.info", "country": "de"},
    "entsoe": {
        "credentialsSecretRef": _SECRET,
        "baseUrl": "https://web-api.tp.entsoe.eu/api",
        "domain": "10YES-REE------0",
        "factors": [{"psrType": "B04", "gramsPerKwh": "490"}, {"psrType": "B14", "gramsPerKwh": "12"}],
    },
    "prometheus": {
        "url": "http://prometheus:9090",
        "query": 'grid_intensity_carbon_average{location="ES"}',
        "tokenSecretRef": _SECRET,
        "caSecretRef": _SECRET,
    },
    "carbonAwareSdk": {"url": "http://carbon-aware-sdk", "location": "eastus"},
    "file": {
        "path": "carbon/ES.csv.gz",
        "timeColumn": "datetime_utc",
        "valueColumn": "intensity_g_per_kwh",
        "estimatedColumn": "estimated",
        "replay": _REPLAY,
    },
    "configMap": {
        "namespace": "carbon",
        "name": "series",
        "key": "ES.csv",
        "timeColumn": "datetime_utc",
        "valueColumn": "intensity_g_per_kwh",
        "estimatedColumn": "estimated",
        "replay": _REPLAY,
    },
}

_SIGNALS = {
    "wattTime": {"type": "marginal", "emissionFactor": "direct"},
    "neso": {"type": "average", "emissionFactor": "direct"},
}
_READING = {"value": "0", "time": _TIME, "source": "static", "estimated": False}


def region_profile(source: str = "static") -> Document:
    """A RegionProfile with every field set, of one kind of source."""
    signal = _SIGNALS.get(source, {"type": "average", "emissionFactor": "lifecycle"})
    return _document(
        "RegionProfile",
        {
            "zone": "ES",
            "source": {source: SOURCES[source]},
            "signal": signal,
            "pollInterval": "5m",
            "staleAfter": "2h",
            "curtailmentCredit": "0.5",
            "pue": "1.15",
            "wueLitersPerKwh": "1.8",
            "electricityPricePerKwh": "0.11",
            "currency": "EUR",
            "roundTripTimes": [{"region": "no", "milliseconds": 45}, {"region": "us-west", "milliseconds": 150}],
            "capacity": {
                "maxConcurrentRequests": 4000,
                "maxWatts": 250000,
                "accelerators": [{"type": "H100-SXM-80GB", "count": 64}, {"type": "A100-SXM-40GB", "count": 0}],
            },
            "largestSharePercent": 50,
            "topologyRegions": ["europe-southwest1", "eu-south-2"],
        },
        {
            "observedGeneration": 3,
            "conditions": [_CONDITION, {**_CONDITION, "type": "SignalFresh", "status": "Unknown", "message": ""}],
            "freshness": "Fresh",
            "intensity": _READING | {"signalType": signal["type"], "emissionFactor": signal["emissionFactor"]},
            "forecast": {
                "issuedAt": _TIME,
                "source": "heliotrope same hour yesterday",
                "points": [
                    {"time": _TIME, "value": "118", "lower": "90.5", "upper": "150"},
                    {"time": "2022-06-01T01:00:00Z", "value": "97.25"},
                ],
            },
            "forecastError": {
                "horizonHours": 24,
                "meanAbsoluteError": "14.2",
                "baselineMeanAbsoluteError": "19",
                "samples": 720,
            },
        },
    )


DEMAND_SOURCES: dict[str, Any] = {
    "events": [
        {"name": "evening", "start": "2026-01-15T17:00:00Z", "end": "2026-01-15T19:00:00Z", "watts": 12000},
        {"name": "night", "start": "2026-01-16T01:00:00Z", "end": "2026-01-16T02:30:00Z", "watts": 9000},
    ],
    "prometheus": {"url": "http://prometheus:9090", "query": "site_power_limit_watts"},
    "http": {"url": "https://dr.example.org/events", "tokenSecretRef": _SECRET, "pollInterval": "1m"},
}


_OBJECTIVE = {
    "mode": "Lexicographic",
    "order": ["energy", "risk"],
    "tolerancesPercent": {"carbon": 1, "energy": 2, "cost": 3, "latency": 4, "risk": 5},
    "weights": {"latency": "1", "energy": "0.5", "carbon": "2", "cost": "0.25", "risk": "0.1"},
    "softMultiplierWeight": "2",
    "scoreTolerancePercent": 1,
    "choices": 4,
}


def carbon_policy(demand: str = "events", *, respond: str = "weights") -> Document:
    """A CarbonPolicy with every field set, of one kind of demand response that answers by one of its ways."""
    weights = {"latency": "1", "energy": "0.5", "carbon": "2", "cost": "0.25", "risk": "0.1"}
    return _document(
        "CarbonPolicy",
        {
            "targetRefs": [
                {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama"},
                {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "qwen"},
            ],
            "objective": {
                "mode": "Weighted",
                "order": ["carbon", "cost"],
                "tolerancesPercent": {"carbon": 3, "energy": 4, "cost": 6, "latency": 10, "risk": 2},
                "weights": weights,
                "softMultiplierWeight": "0.5",
                "scoreTolerancePercent": 1,
                "choices": 3,
            },
            "slo": {"ttft": "2s", "tpot": "80ms"},
            "qualityFloor": "0.7",
            "powerHeadroom": {"leastWatts": 50, "avoidThrottled": False},
            "accountingBoundary": {"embodied": True, "water": True},
            "placement": {
                "scheduler": "Facility",
                "greedyLatencyWeight": "0.5",
                "window": "50ms",
                "windowRequests": 200,
                "solverDeadline": "40ms",
                "largestRegionSharePercent": 60,
                "allowedRegions": ["es", "no"],
                "sessionGate": {"mode": "Pin", "forgetAfter": "30m"},
            },
            "kvActions": {
                "allowed": ["LocalHit", "Recompute", "Retain"],
                "memoryPressureWeight": "25",
                "longestRetention": "2m",
            },
            "autoscaling": {
                "actuation": "Ceiling",
                "interval": "15s",
                "lookAhead": "6h",
                "scaleUp": {"maxReplicasPerStep": 8, "dwell": "10s"},
                "scaleDown": {"maxReplicasPerStep": 2, "dwell": "10m"},
                "saturation": {"scaleUpPercent": 80, "scaleDownPercent": 60},
                "scaleToZero": True,
                "activation": {
                    "depths": ["IdleClock", "EngineSleep", "ProcessExit", "NodeOff"],
                    "warmReservePercent": 10,
                    "leastAwake": 2,
                },
            },
            "power": {
                "clockPerPhase": False,
                "sloHeadroomPercent": 20,
                "minimumDwell": "2m",
                "budget": {
                    "watts": 20000,
                    "schedule": [
                        {
                            "name": "peak",
                            "days": ["Mon", "Tue"],
                            "start": "17:00",
                            "end": "21:00",
                            "timeZone": "Europe/Madrid",
                            "watts": 15000,
                        },
                        {
                            "name": "weekend",
                            "days": ["Sat", "Sun"],
                            "start": "22:00",
                            "end": "06:00",
                            "timeZone": "UTC",
                            "watts": 18000,
                        },
                    ],
                },
            },
            "demandResponse": {
                demand: DEMAND_SOURCES[demand],
                "reductionPercent": 25,
                "rampIn": "3m",
                "rampOut": "8m",
                respond: {"weights": weights, "objective": _OBJECTIVE}[respond],
            },
            "deferral": {"longestDelay": "12h", "safetyMargin": "20m", "dispatchBudget": False},
            "holdoutPercent": 5,
            "holdoutSeed": 42,
            "enforcement": "Enforce",
            "classes": [
                {
                    "name": "batch",
                    "inferenceObjectives": ["nightly"],
                    "minPriority": -100,
                    "maxPriority": -1,
                    "slo": {"ttft": "30s", "tpot": "500ms"},
                    "objective": _OBJECTIVE,
                    "answersDemand": True,
                },
                {
                    "name": "interactive",
                    "inferenceObjectives": [],
                    "minPriority": 10,
                    "maxPriority": 20,
                    "answersDemand": False,
                },
            ],
            "overrides": {
                "allowed": ["Slo", "Objective", "Regions"],
                "shortestTtft": "1ms",
                "longestTtft": "1h",
                "shortestTpot": "1ms",
                "longestTpot": "1h",
            },
            "models": {
                "enabled": True,
                "qualityFloor": "0.9",
                "predictor": "Table",
                "classes": ["interactive"],
                "reasoning": {"lower": "Unsaid", "lowest": "low"},
                "groups": [
                    {
                        "name": "chat",
                        "members": [
                            {
                                "model": "chat-small-lora",
                                "servedBy": "chat-small",
                                "kind": "Lora",
                                "quality": "0.7",
                                "qualityByTask": [{"task": "code", "quality": "0.5"}],
                                "efforts": [{"effort": "low", "outputTokensPercent": 40, "qualityPercent": 95}],
                            },
                        ],
                    },
                ],
            },
        },
        {
            "observedGeneration": 3,
            "ancestors": [
                {
                    "ancestorRef": {
                        "group": "inference.networking.k8s.io",
                        "kind": "InferencePool",
                        "namespace": "llm",
                        "name": "llama",
                    },
                    "controllerName": "heliotrope.io/operator",
                    "conditions": [_CONDITION],
                }
            ],
            "conditions": [_CONDITION],
            "demandResponse": {
                "event": "evening",
                "since": _TIME,
                "start": _TIME,
                "end": _TIME,
                "watts": 12000,
                "baselineWatts": 18000,
            },
        },
        namespace="llm",
    )


COEFFICIENTS: Document = {
    "prefill": {
        "kneeTokens": "512",
        "secondsPerTokenBelow": "0.000013255",
        "secondsPerTokenAbove": "0.000023248",
        "baseSeconds": "0.0072912",
        "secondsPerRequest": "0.00028583",
        "secondsPerTokenSquared": "0.00000000071844",
    },
    "decode": {
        "alphaSeconds": ["0.0077625", "0.000045395", "0.000000069198"],
        "betaSecondsPerToken": ["0.000000043221", "0.000000057169", "0"],
    },
    "energy": {
        "prefillBaseJoules": "2.804",
        "prefillJoulesPerToken": "0.015484",
        "prefillJoulesPerTokenSquared": "0.00000056534",
        "decodeBaseJoules": "3.2056",
        "decodeJoulesPerRequest": "0.02521",
        "decodeJoulesPerCachedToken": "0.000025254",
    },
    "clock": {
        "minMhz": 345,
        "maxMhz": 1980,
        "stepMhz": 15,
        "prefillExponent": "1",
        "decodeExponent": "0.05",
        "decodeKneeMhz": 930,
        "prefillPowerExponent": "2",
        "decodePowerExponent": "0.33023",
    },
    "error": {"prefillSeconds": "0.066419", "decodeSeconds": "0.018478", "stepJoules": "0.13411"},
    "idleWatts": "121.7",
    "sleepWatts": "121.7",
    "hostWatts": "37.5",
    "kvBytesPerToken": 131072,
    "kvCapacityTokens": 426784,
    "blockSize": 16,
    "maxNumSeqs": 64,
    "maxNumBatchedTokens": 8192,
    "clockMhz": 1980,
    "unloadedWatts": "71.8",
}

ENGINES: dict[str, Any] = {"profile": "llama-3.1-8b-h100", "coefficients": COEFFICIENTS}


def workload_variant(engine: str = "profile") -> Document:
    """A WorkloadVariant with every field set, of one kind of engine."""
    return _document(
        "WorkloadVariant",
        {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "endpointSelector": {"matchLabels": {"app": "llama", "variant": "h100"}},
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama-h100"},
            "role": "both",
            "accelerator": {"type": "H100-SXM-80GB", "count": 1, "memoryGibibytes": 80},
            "regionRef": {"name": "es"},
            "minReplicas": 1,
            "maxReplicas": 8,
            "quality": "0.73",
            "pricePerHour": "2.95",
            "currency": "EUR",
            "engine": {engine: ENGINES[engine], "maxNumSeqs": 32, "maxNumBatchedTokens": 4096},
            "energyProfile": [
                {
                    "phase": "prefill",
                    "smClockMhz": 1980,
                    "tokensPerSecond": "42000",
                    "joulesPerToken": "0.0155",
                    "watts": 650,
                    "uncertaintyPercent": 8,
                },
                {
                    "phase": "decode",
                    "smClockMhz": 1980,
                    "tokensPerSecond": "2500",
                    "joulesPerToken": "0.18",
                    "watts": 450,
                    "uncertaintyPercent": 6,
                },
            ],
            "clockRange": {"minMhz": 900, "maxMhz": 1980},
            "wattRange": {"minWatts": 350, "maxWatts": 700},
            "embodiedCarbon": {"gramsCo2e": 310000, "lifetime": "43800h"},
        },
        {
            "observedGeneration": 3,
            "conditions": [_CONDITION | {"type": "TargetResolved"}],
            "desiredReplicas": 4,
            "scaling": {
                "lastChange": "2026-11-03T10:00:00Z",
                "lastDirection": "Down",
                "lowerSince": "2026-11-03T10:05:00Z",
                "lowerPeak": 3,
            },
            "currentReplicas": 3,
            "activeEngines": 2,
            "chosenPower": [
                {
                    "role": "both",
                    "enforcement": "Enforce",
                    "smClockMhz": 1410,
                    "watts": 500,
                    "since": _TIME,
                    "reason": "LeastEnergy",
                }
            ],
        },
        namespace="llm",
    )


def node_power() -> Document:
    """A NodePower with every field set."""
    settings = {"smClockMhz": 1410, "memoryClockMhz": 2619, "watts": 500}
    resting = {"restingPods": ["llama-h100-1"], "restingSmClockMhz": 345}
    pods = [{"name": "llama-h100-0", "uid": "8f1c2d3e-4444-5555-6666-777788889999"}]
    return _document(
        "NodePower",
        {
            "enforcement": "Enforce",
            "intents": [
                {
                    "namespace": "llm",
                    "variant": "llama-h100",
                    "role": "prefill",
                    "pods": pods,
                    "enforcement": "Advise",
                    **settings,
                    **resting,
                },
                {
                    "namespace": "llm",
                    "variant": "llama-h100",
                    "role": "decode",
                    "pods": pods,
                    "enforcement": "Enforce",
                    **settings,
                    **resting,
                },
            ],
        },
        {
            "observedGeneration": 3,
            "conditions": [_CONDITION | {"type": "Applied"}],
            "gpuCount": 2,
            "managedGpus": 1,
            "heartbeatTime": _TIME,
            "gpus": [
                {
                    "uuid": "GPU-5f1c2d3e-0000-1111-2222-333344445555",
                    "product": "NVIDIA H100 80GB HBM3",
                    "owner": {"namespace": "llm", "pod": "llama-h100-0", "variant": "llama-h100", "role": "decode"},
                    "requested": settings,
                    "effective": settings,
                    "original": settings,
                    "reasons": ["Clamped", "Throttled"],
                }
            ],
        },
    )


def full_documents() -> dict[str, tuple[Document, ...]]:
    """By kind, documents that together set every field that there is."""
    return {
        "RegionProfile": tuple(region_profile(source) for source in SOURCES),
        "CarbonPolicy": (
            *(carbon_policy(demand) for demand in DEMAND_SOURCES),
            carbon_policy(respond="objective"),
        ),
        "WorkloadVariant": tuple(workload_variant(engine) for engine in ENGINES),
        "NodePower": (node_power(),),
    }


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> Document:
    """A copy with values put at paths such as `spec.targetRefs[0].name`; parents that are not there are made."""
    result: Document = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *parents, last = steps(path)
        holder: Any = result
        for step in parents:
            holder = holder[step] if isinstance(step, int) else holder.setdefault(step, {})
        if value is REMOVED:
            del holder[last]
        else:
            holder[last] = copy.deepcopy(value)
    return result


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """The value at a path; KeyError or IndexError if there is none."""
    value: Any = document
    for step in steps(path):
        value = value[step]
    return value


def steps(path: str) -> list[str | int]:
    """The keys and indices of a path."""
    return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+(?=\.|\[|$))|\[(\d+)\]", path)]


def _document(kind: str, spec: Document, status: Document, *, namespace: str | None = None) -> Document:
    metadata = {"name": "sample"} | ({"namespace": namespace} if namespace else {})
    document = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
    copied: Document = json.loads(json.dumps(document))  # so that no two fields share an object
    return copied
