"""What is known of simulated endpoints when a request comes (`heliotrope_sim.fleet.columns`)."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import Candidates, RegionView
from heliotrope.engine.coefficients import coefficients
from heliotrope.engine.model import EngineModel, StepEnergy
from heliotrope.place.dispatches import DUTY_SECONDS
from heliotrope_sim.engine import Engine
from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.fleet.columns import endpoint_columns, hardware_rows
from heliotrope_sim.reproduce.roadmap.testbed import EndpointSpec, Region

DUTY_NS = nanoseconds(DUTY_SECONDS)
LARGEST_DUTY = 0.99


@dataclass(slots=True, eq=False)
class Endpoint:
    """One simulated endpoint with what is on its way to it."""

    spec: EndpointSpec
    engine: Engine
    coming: int = 0
    """Requests that were sent there and have not arrived yet."""
    coming_tokens: int = 0
    """Their uncached prompt tokens."""
    prefilled: deque[tuple[int, int]] = field(default_factory=lambda: deque([(0, 0)]))
    """(time, ns in prefill steps until then), not much older than the window of the duty."""

    def duty(self, now_ns: int) -> float:
        """Share of the recent time that prefills took."""
        taken = self.prefilled
        while len(taken) > 1 and taken[1][0] <= now_ns - DUTY_NS:
            taken.popleft()
        encoder = self.engine.encoder
        # Steps of the encoder stall the batch as prefills do.
        spent = self.engine.counters.prefill_ns + (0 if encoder is None else encoder.encoded_ns)
        since, before = taken[0]
        if now_ns > taken[-1][0]:
            taken.append((now_ns, spent))
        return min((spent - before) / (now_ns - since), LARGEST_DUTY) if now_ns > since else 0.0

    def oldest_waiting_seconds(self, now_ns: int) -> float:
        """How long the first of its queue has waited."""
        queued = [s.queued_ns for s in self.engine.in_flight if s.scheduled_ns is None]
        return seconds(max(now_ns - min(queued), 0)) if queued else 0.0


class Believed:
    """Columns that stay the same, once per run.

    Args:
        specs: the endpoints.
        energy_known: False: all are believed to draw what the mean of them does.
    """

    def __init__(self, specs: Sequence[EndpointSpec], *, energy_known: bool) -> None:
        models = [spec.model for spec in specs]
        if not energy_known:
            models = _alike(models)
        self._specs = specs
        self._engine_rows = np.stack([coefficients(model) for model in models])
        self._hardware_rows = hardware_rows(models)

    def candidates(
        self,
        rows: Sequence[int],
        all_endpoints: Sequence[Endpoint],
        hashes: Sequence[int],
        qualities: Mapping[str, float],
        views: Mapping[str, RegionView],
        now_ns: int,
    ) -> tuple[Candidates, NDArray[np.float64]]:
        """Some endpoints for a request.

        Args:
            rows: which ones.
            all_endpoints: all of them.
            hashes: of the request's prompt.
            qualities: by model.
            views: of the regions.
            now_ns: the time.

        Returns:
            The columns, and what each endpoint has of the prompt in its memory or below it.
        """
        chosen = [all_endpoints[i] for i in rows]
        specs = [endpoint.spec for endpoint in chosen]
        n = len(rows)
        cached = np.zeros(n)
        reachable = np.zeros(n)
        for i, endpoint in enumerate(chosen):
            engine = endpoint.engine
            matched = engine.kv.match(hashes, len(hashes))
            reach = matched if engine.tiers is None else engine.tiers.match(hashes, matched, len(hashes))
            cached[i], reachable[i] = matched * engine.kv.block_size, reach * engine.kv.block_size
        index = np.array(rows, dtype=np.intp)
        candidates = endpoint_columns(
            [spec.name for spec in specs],
            [spec.region.name for spec in specs],
            views,
            engine_rows=self._engine_rows[index],
            hardware=self._hardware_rows[index],
            running=[e.engine.num_running for e in chosen],
            waiting=[e.engine.num_waiting + e.coming for e in chosen],
            waiting_tokens=[e.engine.queued_tokens + e.coming_tokens for e in chosen],
            oldest_waiting_seconds=[e.oldest_waiting_seconds(now_ns) for e in chosen],
            kv_tokens=[e.engine.kv_tokens for e in chosen],
            prefill_duty=[e.duty(now_ns) for e in chosen],
            cached_tokens=cached,
            quality=[qualities.get(spec.model.model, np.nan) for spec in specs],
            price_per_hour=[spec.hardware.price_per_hour for spec in specs],
            embodied_grams=[spec.hardware.embodied.grams_co2e for spec in specs],
            embodied_lifetime_seconds=[spec.hardware.embodied.lifetime_seconds for spec in specs],
            kv_capacity_tokens=[spec.model.kv_capacity_tokens for spec in specs],
            sm_clock_mhz=[e.engine.model.clock_mhz for e in chosen],
            power_watts=[e.engine.energy.watts(now_ns) for e in chosen],
        )
        return candidates, reachable


def region_views(
    regions: Sequence[Region], g_per_kwh: Sequence[float], rtt: Mapping[str, float], now_s: float
) -> dict[str, RegionView]:
    """Regions with a fresh reading of these intensities."""
    views = {}
    for region, value in zip(regions, g_per_kwh, strict=True):
        reading = Reading(value, now_s, "recorded", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
        signal = CarbonSignal(reading, stale_after_s=7_200.0)
        views[region.name] = RegionView(region.name, signal, region.pue, region.wue_l_per_kwh, rtt[region.name])
    return views


def _alike(models: Sequence[EngineModel]) -> list[EngineModel]:
    """The same engines with the energies of the mean one."""
    names = StepEnergy.__slots__
    mean = StepEnergy(**{name: float(np.mean([getattr(m.energy, name) for m in models])) for name in names})
    return [replace(model, energy=mean) for model in models]
