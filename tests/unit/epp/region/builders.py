"""Regions, requests and windows as the tests need them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import RegionView
from heliotrope.engine.coefficients import Coefficient, coefficients
from heliotrope.engine.profiles import load as load_profile
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import NO_HOME, Window
from heliotrope_epp.datalayer.region_state import VERSION, EngineStep, RegionLoad, StatePage
from heliotrope_epp.region.config import RegionTier, read
from heliotrope_epp.region.wire import Job
from heliotrope_epp.transport.interface import Headers

ENGINE = load_profile("llama-3.1-8b-h100")
NOW_UNIX_S = 1_700_000_000.0


def tier(*names: str, extra: str = "", urls: Mapping[str, str] | None = None) -> RegionTier:
    """A file with these regions and further top-level YAML."""
    rows = "".join(
        f"  - {{name: {name}, stateUrls: ['{(urls or {}).get(name, 'http://127.0.0.1:1/v1/state')}']}}\n"
        for name in names
    )
    return read(f"apiVersion: heliotrope.io/v1alpha1\nkind: RegionTier\n{extra}\nregions:\n{rows}")


def load(region: str | None = "es", **values: Any) -> RegionLoad:
    row = coefficients(ENGINE)
    plain: dict[str, Any] = {
        "engines": 2,
        "idle_engines": 0,
        "asleep_engines": 0,
        "unknown_engines": 0,
        "running": 4.0,
        "waiting": 0.0,
        "waiting_tokens": 0.0,
        "kv_tokens": 4_000.0,
        "kv_capacity_tokens": 400_000.0,
        "kv_usage": 0.01,
        "prefill_duty": 0.05,
        "batch_capacity": 64.0,
        "free_slots": 120.0,
        "engine": EngineStep(ENGINE.name, 2, {c.name.lower(): float(row[c]) for c in Coefficient}),
    }
    return RegionLoad(region=region, **plain | values)


def page(*loads: RegionLoad, time_unix_s: float | None = None) -> StatePage:
    moment = time.time() if time_unix_s is None else time_unix_s
    return StatePage(version=VERSION, pool=None, time_unix_s=moment, regions=loads)


def view(
    name: str, intensity: float, *, now_unix_s: float = NOW_UNIX_S, kind: SignalType = SignalType.AVERAGE
) -> RegionView:
    reading = Reading(intensity, now_unix_s, "test", kind, EmissionFactor.LIFECYCLE)
    return RegionView(name, CarbonSignal(reading, stale_after_s=1e9), pue=1.2, rtt_seconds=0.02)


def regions(*intensities: float) -> Regions:
    d = len(intensities)

    def of(value: float) -> Any:
        return np.full(d, value)

    return Regions(
        names=tuple(f"r{i}" for i in range(d)),
        engine_rows=np.tile(coefficients(ENGINE), (d, 1)),
        engines=of(4.0),
        batch_capacity=of(64.0),
        running=of(4.0),
        waiting=of(0.0),
        waiting_tokens=of(0.0),
        kv_tokens=of(4_000.0),
        prefill_duty=of(0.05),
        idle_engines=of(0.0),
        intensity_g_per_kwh=np.array(intensities),
        pue=of(1.2),
        rtt_seconds=of(0.0),
        dispatch_seconds=of(0.0),
        age_seconds=of(0.1),
        largest_share=of(1.0),
        recent_share=of(np.nan),
    )


def window(n: int, d: int) -> Window:
    return Window(
        prompt_tokens=np.full(n, 500.0),
        output_tokens=np.full(n, 100.0),
        waited_seconds=np.zeros(n),
        ttft_slo_seconds=np.full(n, 2.0),
        tpot_slo_seconds=np.full(n, 0.1),
        cached_tokens=np.zeros((n, d)),
        allowed=np.ones((n, d), dtype=bool),
        home=np.full(n, NO_HOME),
    )


def job(number: int = 1, scheduler: str = "Greedy", n: int = 3) -> Job:
    return Job(number, scheduler, window(n, 2), regions(300.0, 20.0), PlacementPolicy(), NOW_UNIX_S)


@dataclass(slots=True)
class Client:
    """A request as the transport hands it over; remembers the answer."""

    body: bytes = b""
    given: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    path: str = "/v1/chat/completions"
    sent: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    told: dict[str, str] = field(default_factory=dict)
    rejected: tuple[int, bytes, dict[str, str]] | None = None
    ctx: Any = None
    endpoint: str | None = "nothing yet"
    received_s: float = 0.0
    cancelled: bool = False
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    subset: tuple[str, ...] | None = None

    def header(self, name: str) -> str | None:
        return self.given.get(name)

    def call_header(self, name: str) -> str | None:
        return None

    def headers(self) -> dict[str, str]:
        return dict(self.given)

    @property
    def answered(self) -> bool:
        return self.ctx is not None or self.rejected is not None

    def route(
        self,
        endpoint: str | None,
        set_headers: Headers = (),
        remove_headers: Any = (),
        body: bytes | None = None,
        dynamic_metadata: Any = None,
        response_headers: Headers = (),
        ctx: object = None,
    ) -> bool:
        if self.cancelled or self.answered:
            return False
        self.endpoint, self.sent, self.removed = endpoint, dict(set_headers), tuple(remove_headers)
        self.told, self.ctx = dict(response_headers), ctx
        return True

    def reject(self, status: int, body: bytes = b"", headers: Headers = ()) -> bool:
        if self.cancelled or self.answered:
            return False
        self.rejected = (status, body, dict(headers))
        return True
