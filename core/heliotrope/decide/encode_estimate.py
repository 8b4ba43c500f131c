"""What encoding adds to the estimates of plans, each phase priced where its joules are drawn."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.footprint import embodied_grams, hardware_cost, water_liters
from heliotrope.decide.candidates import Candidates, FloatColumn
from heliotrope.decide.columns import Columns
from heliotrope.decide.encode import EncodePlan, Encoding, best_plan, encode_graph, encode_plans
from heliotrope.decide.pair_estimate import Prices
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.region_columns import RegionColumns
from heliotrope.decide.request import RequestProfile
from heliotrope.units import grams_co2e


@dataclass(frozen=True, slots=True)
class Encodes:
    """How each plan encodes, and what that takes; every estimate of the plan has it already."""

    plans: tuple[EncodePlan, ...]
    """Per candidate."""
    grams_co2e: FloatColumn
    """Operational, per candidate; NaN where a grid is unknown."""
    encoders: tuple[str, ...]
    """The endpoints that the plans' rows mean."""
    regions: tuple[str | None, ...]
    """Theirs."""
    unknown: int
    """Things of the prompt that take time and joules which no estimate has."""

    def endpoints(self, row: int) -> tuple[str, ...]:
        """The encoders of a plan; empty: in place."""
        return tuple(self.encoders[i] for i in self.plans[row].encoders)

    def regions_of(self, row: int) -> tuple[str | None, ...]:
        """The regions of the same."""
        return tuple(self.regions[i] for i in self.plans[row].encoders)


class _Sides:
    """What joules and time cost at endpoints, one row each."""

    def __init__(
        self, candidates: Candidates, regions: RegionColumns, now_unix_s: float, duration_s: float, *, embodied: bool
    ) -> None:
        self._pue, self._wue = regions.pue(), regions.wue_l_per_kwh()
        self._intensity = regions.intensity_g_per_kwh(now_unix_s, duration_s)
        self._candidates, self._embodied = candidates, embodied

    def grams(self, row: int, joules: float) -> float:
        """Operational emissions."""
        return float(grams_co2e(joules, self._pue[row], self._intensity[row])) if joules else 0.0

    def intensity_joules(self, row: int, joules: float) -> float:
        """Joules weighted by intensity."""
        return float(joules * self._intensity[row]) if joules else 0.0

    def liters(self, row: int, joules: float) -> float:
        """Of water."""
        return float(water_liters(joules, self._wue[row])) if joules else 0.0

    def hardware(self, row: int, seconds: float) -> tuple[float, float]:
        """Cost and embodied grams of occupying it."""
        c = self._candidates
        if not seconds:
            return 0.0, 0.0
        grams = embodied_grams(c.embodied_grams[row], c.embodied_lifetime_seconds[row], seconds)
        return float(hardware_cost(c.price_per_hour[row], seconds)), float(grams) if self._embodied else 0.0


def add_encodes(
    columns: Columns,
    service_seconds: FloatColumn,
    prices: Prices,
    candidates: Candidates,
    encoding: Encoding,
    request: RequestProfile,
    policy: DecisionPolicy,
    regions: RegionColumns,
    now_unix_s: float,
    duration_s: float,
) -> Encodes:
    """Choose how each plan encodes and add that to its estimates, in place.

    Errors are independent of the rest's for latency and taken to be alike for energy, whose error is unknown where
    something of the prompt is.

    Args:
        columns: of all plans, complete but for encoding.
        service_seconds: of all plans.
        prices: of all plans.
        candidates: the plans.
        encoding: what is known of encoding the request's images.
        request: its media is not empty.
        policy: for the promise of TTFT, and whether the making of hardware counts.
        regions: of the plans.
        now_unix_s: for forecasts.
        duration_s: of the longest service.
    """
    graph, embodied = encode_graph(request, encoding), policy.include_embodied
    unknown = sum(item.tokens is None for item in request.media)
    own = _Sides(candidates, regions, now_unix_s, duration_s, embodied=embodied)
    prefillers = None if candidates.pairs is None else candidates.pairs.prefillers
    pool = encoding.encoders

    def others(of: Candidates | None) -> _Sides | None:
        columns_of = None if of is None else RegionColumns(of, regions)
        if of is None or columns_of is None:
            return None
        return _Sides(of, columns_of, now_unix_s, duration_s, embodied=embodied)

    at_prefillers, at_encoders = others(prefillers), others(pool)
    ttft_slo = policy.ttft_slo_seconds if request.ttft_slo_seconds is None else request.ttft_slo_seconds
    ways: dict[tuple[str, bool], tuple[list[EncodePlan], list[float]]] = {}
    chosen: list[EncodePlan] = []
    operational = np.zeros(len(candidates))
    for row in range(len(candidates)):
        pair = row - candidates.aggregated_count
        here, at = (own, row) if pair < 0 else (at_prefillers, _prefiller(candidates, pair))
        assert here is not None
        # llm-d's sidecar pulls no cached prefix for a prompt that went through encoders.
        elsewhere = candidates.kv_sources[row] is None
        where = candidates.prefill_endpoint(row), elsewhere
        if where not in ways:
            plans = encode_plans(graph, encoding, where[0], elsewhere=elsewhere)
            ways[where] = plans, [_grams(plan, here, at, at_encoders) for plan in plans]
        plans, grams = ways[where]
        best = best_plan(plans, grams, float(columns.ttft[row]), ttft_slo)
        plan = plans[best]
        chosen.append(plan)
        operational[row] = grams[best]
        share = float(max(columns.batch[row], 1.0)) if pair < 0 else 1.0
        _add(columns, service_seconds, prices, row, plan, encoding.model.relative_error, unknown=unknown > 0)
        _price(prices, row, plan, here, at, at_encoders, grams[best], float(columns.energy[row]), share)
    names = () if pool is None else pool.endpoints
    return Encodes(tuple(chosen), operational, names, () if pool is None else pool.regions, unknown)


def _prefiller(candidates: Candidates, pair: int) -> int:
    assert candidates.pairs is not None
    return int(candidates.pairs.rows[pair])


def _grams(plan: EncodePlan, here: _Sides, at: int, there: _Sides | None) -> float:
    grams = here.grams(at, plan.here_joules)
    for row, joules in zip(plan.encoders, plan.there_joules, strict=True):
        assert there is not None
        grams += there.grams(row, joules)
    return grams


def _add(
    columns: Columns,
    service_seconds: FloatColumn,
    prices: Prices,
    row: int,
    plan: EncodePlan,
    relative_error: float,
    *,
    unknown: bool,
) -> None:
    ttft, energy = columns.ttft[row], columns.energy[row]
    joules, seconds = plan.joules, plan.seconds
    if seconds:
        off = np.hypot(columns.ttft_error[row] * ttft, relative_error * seconds)
        columns.ttft_error[row] = off / (ttft + seconds)
        columns.ttft[row] += seconds
        # Those that wait there already wait for the encoder's step too.
        if columns.queue_ttft[row] > 0.0:
            columns.queue_ttft[row] += plan.here_seconds
        service_seconds[row] += seconds
    if joules:
        columns.energy_error[row] = (columns.energy_error[row] * energy + relative_error * joules) / (energy + joules)
        # Not yet the joules: the mean intensity is taken over both parts.
        prices.intensity_g_per_kwh[row] *= energy / (energy + joules)
        for column in (columns.energy, columns.incremental, columns.attributed):
            column[row] += joules
    if unknown:
        columns.energy_error[row] = np.nan


def _price(
    prices: Prices,
    row: int,
    plan: EncodePlan,
    here: _Sides,
    at: int,
    there: _Sides | None,
    grams: float,
    energy_joules: float,
    share: float,
) -> None:
    """`share`: among how many requests the endpoint's hardware is divided while it encodes."""
    if not plan.joules:
        return
    parts = [(here, at, plan.here_joules, plan.here_seconds / share)]
    if there is not None:
        of = zip(plan.encoders, plan.there_joules, plan.there_seconds, strict=True)
        parts += [(there, encoder, joules, seconds) for encoder, joules, seconds in of]
    prices.grams_co2e[row] += grams
    for side, i, joules, seconds in parts:
        cost, embodied = side.hardware(i, seconds)
        prices.grams_co2e[row] += embodied
        prices.cost[row] += cost
        prices.water_liters[row] += side.liters(i, joules)
        prices.intensity_g_per_kwh[row] += side.intensity_joules(i, joules) / energy_joules
