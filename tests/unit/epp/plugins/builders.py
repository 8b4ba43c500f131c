"""Requests, endpoints and options as the tests need them."""

from dataclasses import replace

from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine.profiles import load as load_profile
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest, Option

NOW_S = 100.0
NOW_UNIX_S = 1_700_000_000.0
STALE_AFTER_S = 2.0
ENGINE = load_profile("llama-3.1-8b-h100")


def request(prompt: bytes = b"x" * 4000, *, request_id: str = "r-1", model: str = "m", salt: str = "") -> LlmRequest:
    return LlmRequest(
        request_id=request_id,
        path="/v1/completions",
        model=model,
        prompt=prompt,
        prompt_tokens=max(1, -(-len(prompt) // 4)),
        max_output_tokens=None,
        expected_output_tokens=200.0,
        streaming=True,
        cache_salt=salt,
    )


def metrics(
    *, running: float | None = 1.0, waiting: float | None = 0.0, kv_usage: float | None = 0.1, age_s: float = 0.1
) -> EngineMetrics:
    return EngineMetrics(
        NOW_S - age_s, running=running, waiting=waiting, kv_usage=kv_usage, block_size=16, num_blocks=30_000
    )


def state(
    name: str,
    *,
    metrics: EngineMetrics | None = None,
    region: str | None = None,
    labels: dict[str, str] | None = None,
    traits: Traits | None = None,
) -> EndpointState:
    port = 8000 + sum(name.encode()) % 1000
    endpoint = Endpoint(name, "default", "10.0.0.1", port, labels or {})
    return EndpointState(endpoint, traits or Traits(region=region, engine=ENGINE), metrics)


def option(of: EndpointState, cached_tokens: float = 0.0) -> Option:
    return Option(of, of.load(NOW_S, STALE_AFTER_S), cached_tokens)


def region(name: str, intensity_g_per_kwh: float) -> RegionView:
    reading = Reading(intensity_g_per_kwh, NOW_UNIX_S, "test", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
    return RegionView(name, CarbonSignal(reading, stale_after_s=3600.0), pue=1.2)


class Carbon:
    """What the resources say, settable."""

    def __init__(self, policy: DecisionPolicy | None = None, **intensities: float) -> None:
        self.attached = policy
        self.views = {name: region(name, value) for name, value in intensities.items()}

    def policy(self) -> DecisionPolicy | None:
        return self.attached

    def regions(self) -> dict[str, RegionView]:
        return self.views


def advise(policy: DecisionPolicy) -> DecisionPolicy:
    return replace(policy, enforce=False)
