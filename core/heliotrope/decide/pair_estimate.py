"""The prefiller's part in the estimates of prefill/decode pairs: what it adds, and what its own region makes of it.

Rows of pairs come last and say what the decoder takes (`heliotrope.decide.estimate`); these functions complete them in
place and touch no other row.
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.footprint import embodied_grams, hardware_cost, water_liters
from heliotrope.decide.candidates import Candidates, FloatColumn, PrefillPairs
from heliotrope.decide.columns import Columns
from heliotrope.decide.region_columns import RegionColumns
from heliotrope.units import grams_co2e


@dataclass(frozen=True, slots=True)
class Prices:
    """Columns of all plans, priced as if each plan's decoder drew everything."""

    intensity_g_per_kwh: FloatColumn
    grams_co2e: FloatColumn
    water_liters: FloatColumn
    cost: FloatColumn


def add_prefills(
    columns: Columns, candidates: Candidates, pairs: PrefillPairs, rtt_seconds: FloatColumn
) -> FloatColumn:
    """Add what the prefillers take to latencies and joules.

    Errors of the two TTFTs are independent, those of their energies are taken to be alike.

    Args:
        columns: with the decoders' part, transfers included.
        candidates: all plans.
        pairs: the last of them.
        rtt_seconds: per plan; TTFT has it already, its relative error is of the rest.

    Returns:
        Per plan, the joules that are drawn where it prefills, if that is elsewhere; else 0.
    """
    from heliotrope.decide import phase_kernel as k

    drawn = np.zeros(len(candidates))
    k.add_prefills(
        columns.table,
        candidates.aggregated_count,
        candidates.transfer_seconds,
        rtt_seconds,
        pairs.prefill,
        pairs.rows,
        pairs.tail_seconds,
        pairs.sender_joules,
        drawn,
    )
    return drawn


def occupied_seconds(pairs: PrefillPairs) -> tuple[FloatColumn, FloatColumn]:
    """Per pair: how long the request is at the prefiller before it comes to the decoder, and occupies that alone."""
    from heliotrope.decide import phase_kernel as k

    return pairs.line(k.TTFT), pairs.line(k.BUSY_SECONDS)


def price_by_side(
    prices: Prices,
    energy_joules: FloatColumn,
    drawn_joules: FloatColumn,
    pairs: PrefillPairs,
    regions: RegionColumns,
    now_unix_s: float,
    duration_s: float,
    *,
    include_embodied: bool,
) -> None:
    """Price the joules of pairs by the region that they are drawn in, and add the prefiller's hardware.

    A pair's intensity is the mean over its joules.

    Args:
        prices: changed in place.
        energy_joules: of all plans, both sides together.
        drawn_joules: of them, what is drawn at the prefiller; from `add_prefills`.
        pairs: the last plans.
        regions: of the plans.
        now_unix_s: for forecasts.
        duration_s: of the longest service.
        include_embodied: whether grams count the making of hardware.
    """
    last = slice(len(energy_joules) - len(pairs), None)
    prefillers = pairs.prefillers
    there = RegionColumns(prefillers, regions)
    prefill_joules = drawn_joules[last]
    decode_joules = energy_joules[last] - prefill_joules
    intensity, prefill_intensity = (
        prices.intensity_g_per_kwh[last],
        there.intensity_g_per_kwh(now_unix_s, duration_s)[pairs.rows],
    )
    # What stands there has the decoder's embodied share beside all of the joules.
    prices.grams_co2e[last] += grams_co2e(prefill_joules, there.pue()[pairs.rows], prefill_intensity) - grams_co2e(
        prefill_joules, regions.pue()[last], intensity
    )
    prices.intensity_g_per_kwh[last] = (decode_joules * intensity + prefill_joules * prefill_intensity) / energy_joules[
        last
    ]
    prices.water_liters[last] += water_liters(
        prefill_joules, there.wue_l_per_kwh()[pairs.rows] - regions.wue_l_per_kwh()[last]
    )
    _, busy_seconds = occupied_seconds(pairs)
    prices.cost[last] += hardware_cost(prefillers.price_per_hour[pairs.rows], busy_seconds)
    if include_embodied:
        prices.grams_co2e[last] += embodied_grams(
            prefillers.embodied_grams[pairs.rows], prefillers.embodied_lifetime_seconds[pairs.rows], busy_seconds
        )
