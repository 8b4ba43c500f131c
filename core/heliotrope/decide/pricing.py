"""What follows from latencies and joules: loops of `heliotrope.decide.estimate`.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown and passes through.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon import footprint
from heliotrope.compiled import compiled
from heliotrope.units import grams_co2e, hours_from_seconds, kwh_from_joules, liters_from_it_kwh

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]

# Lines of what is known of regions (`heliotrope.decide.region_columns.RegionColumns.table`).
INTENSITY, PUE, WUE = 0, 1, 2
REGION_LINES = 3

_embodied_grams = compiled(footprint.embodied_grams)
_grams_co2e = compiled(grams_co2e)
_hours = compiled(hours_from_seconds)
_kwh = compiled(kwh_from_joules)
_liters = compiled(liters_from_it_kwh)


@compiled
def add_transfers(table: Matrix, transfer_seconds: Row, transfer_joules: Row) -> None:
    """Add what fetching KV blocks takes.

    Args:
        table: of `heliotrope.decide.columns.Columns`, changed.
        transfer_seconds: of all plans; so is the next.
        transfer_joules: see there.
    """
    ttft, energy, incremental, attributed = table[0], table[5], table[7], table[8]
    for i in range(len(ttft)):
        ttft[i] += transfer_seconds[i]
        energy[i] += transfer_joules[i]
        incremental[i] += transfer_joules[i]
        attributed[i] += transfer_joules[i]


@compiled
def write_service(table: Matrix, expected_output_tokens: float, service_seconds: Row) -> float:
    """Write the time to the last token, and give the longest that is known and finite; 0 where none is."""
    ttft, tpot = table[0], table[1]
    longest = 0.0
    for i in range(len(ttft)):
        seconds = ttft[i] + expected_output_tokens * tpot[i]
        service_seconds[i] = seconds
        longest = max(longest, seconds) if seconds == seconds else longest
    return longest if longest < np.inf else 0.0


@compiled
def write_prices(
    table: Matrix,
    service_seconds: Row,
    elsewhere_seconds: Row,
    region_codes: NDArray[np.intp],
    regions: Matrix,
    embodied: Row,
    embodied_lifetime_seconds: Row,
    price_per_hour: Row,
    include_embodied: bool,
    prices: Matrix,
) -> None:
    """Write intensity, grams, litres and cost of every plan, as if its own endpoint drew everything.

    Args:
        table: of `heliotrope.decide.columns.Columns`.
        service_seconds: time to the last token.
        elsewhere_seconds: of it, what the request is elsewhere; of the last so many plans.
        region_codes: of `Candidates`; -1 takes the last column of the next.
        regions: shape (`REGION_LINES`, regions + 1).
        embodied: grams of `Candidates`; so are the next two.
        embodied_lifetime_seconds: see there.
        price_per_hour: see there.
        include_embodied: whether grams count the making of hardware.
        prices: shape (4, n), written to: intensity, grams, litres, cost.
    """
    energy, batch = table[5], table[10]
    n = len(energy)
    first = n - len(elsewhere_seconds)
    for i in range(n):
        code = region_codes[i]
        code = code if code >= 0 else regions.shape[1] - 1
        sharing = 1.0 if batch[i] < 1.0 else batch[i]
        reserved = service_seconds[i] / sharing
        if i >= first:
            reserved -= elsewhere_seconds[i - first] / sharing
        grams = _grams_co2e(energy[i], regions[PUE, code], regions[INTENSITY, code])
        if include_embodied:
            grams += _embodied_grams(embodied[i], embodied_lifetime_seconds[i], reserved)
        prices[0, i] = regions[INTENSITY, code]
        prices[1, i] = grams
        prices[2, i] = _liters(_kwh(energy[i]), regions[WUE, code])
        prices[3, i] = price_per_hour[i] * _hours(reserved)


@compiled
def price_pairs(
    energy_joules: Row,
    drawn_joules: Row,
    region_codes: NDArray[np.intp],
    regions: Matrix,
    rows: NDArray[np.intp],
    prefiller_codes: NDArray[np.intp],
    prefiller_regions: Matrix,
    occupied_seconds: Row,
    embodied: Row,
    embodied_lifetime_seconds: Row,
    price_per_hour: Row,
    include_embodied: bool,
    prices: Matrix,
) -> None:
    """Price the joules of pairs by the region that they are drawn in, and add the prefiller's hardware.

    A pair's intensity is the mean over its joules.

    Args:
        energy_joules: of all plans, both sides together.
        drawn_joules: of them, what is drawn at the prefiller.
        region_codes: of all plans; -1 takes the last column of the next.
        regions: shape (`REGION_LINES`, regions + 1).
        rows: of the pairs, which come last: their prefillers'.
        prefiller_codes: as `region_codes`, of the prefillers; so is the next.
        prefiller_regions: see there.
        occupied_seconds: a prefiller's, by its prefill.
        embodied: grams of the prefillers; so are the next two.
        embodied_lifetime_seconds: see there.
        price_per_hour: see there.
        include_embodied: whether grams count the making of hardware.
        prices: of `write_prices`, changed.
    """
    first = len(energy_joules) - len(rows)
    for pair in range(len(rows)):
        i, j = first + pair, rows[pair]
        here, there = region_codes[i], prefiller_codes[j]
        here = here if here >= 0 else regions.shape[1] - 1
        there = there if there >= 0 else prefiller_regions.shape[1] - 1
        joules, energy = drawn_joules[i], energy_joules[i]
        intensity, intensity_there = prices[0, i], prefiller_regions[INTENSITY, there]
        # What stands there has the decoder's embodied share beside all of the joules.
        grams = prices[1, i] + (
            _grams_co2e(joules, prefiller_regions[PUE, there], intensity_there)
            - _grams_co2e(joules, regions[PUE, here], intensity)
        )
        if include_embodied:
            grams += _embodied_grams(embodied[j], embodied_lifetime_seconds[j], occupied_seconds[j])
        prices[0, i] = ((energy - joules) * intensity + joules * intensity_there) / energy
        prices[1, i] = grams
        prices[2, i] += _liters(_kwh(joules), prefiller_regions[WUE, there] - regions[WUE, here])
        prices[3, i] += price_per_hour[j] * _hours(occupied_seconds[j])
