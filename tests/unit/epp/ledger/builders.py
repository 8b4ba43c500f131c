"""What the ledger is told, with everything that a test does not care about filled in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import Embodied
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import STEERED, FinishedRequest
from heliotrope_epp.transport.interface import Cause

NOW = 1_800_000_000.0
"""A whole multiple of five minutes."""
NAN = float("nan")


def finished(**changes: Any) -> FinishedRequest:
    values: dict[str, Any] = {
        "request_id": "r",
        "model": "m",
        "tenant": "t",
        "request_class": "short",
        "arm": STEERED,
        "policy": "llm/green",
        "endpoint": "llm/a",
        "variant": "llm/v",
        "region": "es",
        "streaming": True,
        "dispatched_s": 0.0,
        "first_s": 1.0,
        "last_s": 2.0,
        "ended_s": 2.0,
        "dispatched_unix_s": NOW,
        "ended_unix_s": NOW + 2.0,
        "status": 200,
        "cause": Cause.COMPLETE,
        "believed_prompt_tokens": 10,
        "believed_cached_tokens": 0.0,
        "expected_output_tokens": 5.0,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": 5,
        "expected": None,
    }
    return FinishedRequest(**{**values, **changes})


def drew(**changes: Any) -> RequestEnergy:
    values: dict[str, Any] = {
        "start_unix_s": NOW,
        "end_unix_s": NOW + 2.0,
        "millijoules": 3_600_000,
        "idle_joules": 7.0,
        "host_joules": 400.0,
        "accelerator_seconds": 0.5,
        "coverage": 1.0,
    }
    return RequestEnergy(**{**values, **changes})


def metered(**changes: Any) -> MeteredInterval:
    values: dict[str, Any] = {
        "endpoint": "llm/a",
        "variant": "llm/v",
        "region": "es",
        "model": "m",
        "start_unix_s": NOW,
        "end_unix_s": NOW + 2.0,
        "total_millijoules": 5_000_000,
        "requests_millijoules": 3_600_000,
        "others_millijoules": 400_000,
        "idle_millijoules": 900_000,
        "unattributed_millijoules": 100_000,
        "host_joules": 1_000.0,
    }
    return MeteredInterval(**{**values, **changes})


def region(name: str = "es", **spec: Any) -> RegionProfile:
    return RegionProfile.model_validate(
        {
            "metadata": {"name": name},
            "spec": {"zone": "ES", "source": {"static": {"intensityGramsPerKwh": "100"}}, **spec},
        }
    )


def reading(value: float = 100.0, **changes: Any) -> Reading:
    values: dict[str, Any] = {
        "intensity_g_per_kwh": value,
        "measured_unix_s": NOW - 60.0,
        "source": "static",
        "signal_type": SignalType.AVERAGE,
        "emission_factor": EmissionFactor.LIFECYCLE,
    }
    return Reading(**{**values, **changes})


def store(*, fresh: bool = True, **spec: Any) -> EndpointStore:
    """One region and one endpoint, PUE 1.5."""
    made = EndpointStore()
    stated = {"pue": "1.5", "wueLitersPerKwh": "2", "electricityPricePerKwh": "0.1", "currency": "EUR", **spec}
    made.apply(world(Embodied(grams_co2e=1_000_000.0, lifetime_seconds=1e8), **stated))
    made.set_signals({"es": CarbonSignal(reading(), stale_after_s=3_600.0 if fresh else 1.0)})
    return made


def world(embodied: Embodied | None = None, **spec: Any) -> World:
    traits = Traits(variant="llm/v", region="es", price_per_hour=3.6, currency="USD", embodied=embodied)
    return World(
        endpoints=(Endpoint("a", "llm", "10.0.0.1", 8000),),
        traits={"llm/a": traits},
        regions={"es": region(**spec)},
    )


def clock(now_unix_s: float = NOW + 2.0, **clocks: Callable[[], float]) -> Clock:
    return Clock(**{"unix": lambda: now_unix_s, **clocks})


def settings(folder: Path, **changes: Any) -> LedgerSettings:
    return LedgerSettings(folder, **{"flush_seconds": 0.02, **changes})
