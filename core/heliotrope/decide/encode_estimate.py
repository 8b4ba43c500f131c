"""What encoding adds to the estimates of plans, each phase priced where its joules are drawn."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.footprint import embodied_grams, hardware_cost, water_liters
from heliotrope.decide.candidates import Candidates, FloatColumn, IntColumn
from heliotrope.decide.columns import Columns
from heliotrope.decide.encode import EncodePlan, Encoding, alike, best_plan, encode_graph, encode_plans, settled_plan
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.region_columns import RegionColumns
from heliotrope.decide.request import RequestProfile
from heliotrope.units import grams_co2e


@dataclass(frozen=True, slots=True)
class Prices:
    """Columns of all plans, priced as if each plan's decoder drew everything."""

    intensity_g_per_kwh: FloatColumn
    grams_co2e: FloatColumn
    water_liters: FloatColumn
    cost: FloatColumn


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

    def __init__(self, candidates: Candidates, regions: RegionColumns, now_unix_s: float, duration_s: float) -> None:
        self.pue, self.wue = regions.pue(), regions.wue_l_per_kwh()
        self.intensity = regions.intensity_g_per_kwh(now_unix_s, duration_s)
        self.price = candidates.price_per_hour
        self.embodied, self.lifetime = candidates.embodied_grams, candidates.embodied_lifetime_seconds

    def grams(self, row: int, joules: float) -> float:
        """Operational emissions."""
        return float(grams_co2e(joules, self.pue[row], self.intensity[row])) if joules else 0.0

    def then(self, others: "_Sides | None", first: int, rows: IntColumn) -> None:
        """The first of these rows, then those rows of others."""
        if others is not None:
            for name in ("pue", "wue", "intensity", "price", "embodied", "lifetime"):
                setattr(self, name, np.concatenate([getattr(self, name)[:first], getattr(others, name)[rows]]))


# What a plan takes elsewhere beside operational emissions, all of its encoders together.
_LITERS, _COST, _EMBODIED, _WEIGHTED = range(4)


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
    something of the prompt is. Where several requests share an endpoint, they share what its hardware costs while it
    encodes; an encoder, and a pair's prefiller, is charged to the request alone.

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
    pairs, pool, first = candidates.pairs, encoding.encoders, candidates.aggregated_count
    codes = candidates.region_codes
    here = _Sides(candidates, regions, now_unix_s, duration_s)
    if pairs is not None:
        at_prefillers = _Sides(pairs.prefillers, RegionColumns(pairs.prefillers, regions), now_unix_s, duration_s)
        here.then(at_prefillers, first, pairs.rows)
        codes = np.concatenate([codes[:first], -2 - pairs.prefillers.region_codes[pairs.rows]])
    there = None if pool is None else _Sides(pool, RegionColumns(pool, regions), now_unix_s, duration_s)
    ttft_slo = policy.ttft_slo_seconds if request.ttft_slo_seconds is None else request.ttft_slo_seconds
    plans, grams = _chosen(columns, candidates, encoding, request, codes, here, there, ttft_slo)
    _add(columns, service_seconds, prices, plans, encoding.model.relative_error)
    unknown = sum(item.tokens is None for item in request.media)
    if unknown:
        columns.energy_error[:] = np.nan
    sharing = np.where(np.arange(len(candidates)) < first, np.maximum(columns.batch, 1.0), 1.0)
    _price(prices, columns.energy, plans, grams, sharing, here, there, include_embodied=policy.include_embodied)
    names, where = ((), ()) if pool is None else (pool.endpoints, pool.regions)
    return Encodes(plans, grams, names, where, unknown)


def _chosen(
    columns: Columns,
    candidates: Candidates,
    encoding: Encoding,
    request: RequestProfile,
    codes: IntColumn,
    here: _Sides,
    there: _Sides | None,
    ttft_slo_seconds: float | None,
) -> tuple[tuple[EncodePlan, ...], FloatColumn]:
    """The plan of each row and its operational emissions; `codes` tell apart where grids differ."""
    graph = encode_graph(request, encoding)
    kinds: dict[str, tuple[object, ...]] = {}
    ways: dict[object, tuple[list[EncodePlan], list[float]]] = {}
    chosen: list[EncodePlan] = []
    operational = np.zeros(len(candidates))
    for row, (code, ttft) in enumerate(zip(codes.tolist(), columns.ttft.tolist(), strict=True)):
        endpoint = candidates.prefill_endpoint(row)
        if row in encoding.settled:
            plan = settled_plan(graph, encoding, endpoint, encoding.settled[row])
            chosen.append(plan)
            operational[row] = _grams(plan, here, row, there)
            continue
        if endpoint not in kinds:
            kinds[endpoint] = alike(encoding, endpoint)
        # llm-d's sidecar pulls no cached prefix for a prompt that went through encoders.
        elsewhere = candidates.kv_sources[row] is None
        key = (kinds[endpoint], code, elsewhere)
        if key not in ways:
            plans = encode_plans(graph, encoding, endpoint, elsewhere=elsewhere)
            ways[key] = plans, [_grams(plan, here, row, there) for plan in plans]
        plans, grams = ways[key]
        best = best_plan(plans, grams, ttft, ttft_slo_seconds)
        chosen.append(plans[best])
        operational[row] = grams[best]
    return tuple(chosen), operational


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
    plans: tuple[EncodePlan, ...],
    relative_error: float,
) -> None:
    seconds, joules = np.array([plan.seconds for plan in plans]), np.array([plan.joules for plan in plans])
    ttft, energy = columns.ttft, columns.energy
    later, dearer = seconds > 0.0, joules > 0.0
    off = np.hypot(columns.ttft_error * ttft, relative_error * seconds)
    np.divide(off, ttft + seconds, out=columns.ttft_error, where=later)
    ttft += seconds
    service_seconds += seconds
    # Those that wait there already wait for the encoder's step too.
    columns.queue_ttft[columns.queue_ttft > 0.0] += np.array([plan.here_seconds for plan in plans])[
        columns.queue_ttft > 0.0
    ]
    off = columns.energy_error * energy + relative_error * joules
    np.divide(off, energy + joules, out=columns.energy_error, where=dearer)
    # Not yet the joules: the mean intensity is taken over both parts.
    np.multiply(prices.intensity_g_per_kwh, energy / (energy + joules), out=prices.intensity_g_per_kwh, where=dearer)
    for column in (columns.energy, columns.incremental, columns.attributed):
        np.add(column, joules, out=column)


def _price(
    prices: Prices,
    energy_joules: FloatColumn,
    plans: tuple[EncodePlan, ...],
    grams: FloatColumn,
    sharing: FloatColumn,
    here: _Sides,
    there: _Sides | None,
    *,
    include_embodied: bool,
) -> None:
    """`sharing`: among how many requests an endpoint's hardware is divided while it encodes."""
    of_plans: dict[int, tuple[float, ...]] = {}
    for plan in plans:
        if id(plan) not in of_plans:
            of_plans[id(plan)] = _elsewhere(plan, there)
    table = np.array([of_plans[id(plan)] for plan in plans]).T
    joules = np.array([plan.here_joules for plan in plans])
    seconds = np.array([plan.here_seconds for plan in plans]) / sharing
    prices.grams_co2e[:] += grams
    if include_embodied:
        prices.grams_co2e[:] += embodied_grams(here.embodied, here.lifetime, seconds) + table[_EMBODIED]
    prices.water_liters[:] += water_liters(joules, here.wue) + table[_LITERS]
    prices.cost[:] += hardware_cost(here.price, seconds) + table[_COST]
    prices.intensity_g_per_kwh[:] += (joules * here.intensity + table[_WEIGHTED]) / energy_joules


def _elsewhere(plan: EncodePlan, there: _Sides | None) -> tuple[float, ...]:
    """Water, cost, embodied emissions, and joules weighted by intensity, of its encoders."""
    sums = [0.0] * 4
    for row, joules, seconds in zip(plan.encoders, plan.there_joules, plan.there_seconds, strict=True):
        assert there is not None
        if joules:
            sums[_LITERS] += float(water_liters(joules, there.wue[row]))
            sums[_WEIGHTED] += float(joules * there.intensity[row])
        if seconds:
            sums[_COST] += float(hardware_cost(there.price[row], seconds))
            sums[_EMBODIED] += float(embodied_grams(there.embodied[row], there.lifetime[row], seconds))
    return tuple(sums)
