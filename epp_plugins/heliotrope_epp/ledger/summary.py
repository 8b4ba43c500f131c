"""Sums over the view `ledger`, by any of its keys."""

from collections.abc import Sequence
from typing import Any

import duckdb

from heliotrope.units import JOULES_PER_KWH, MILLIJOULES_PER_JOULE
from heliotrope_epp.ledger.read import TABLE, between

_COLUMNS = (
    "region",
    "variant",
    "model",
    "asked_model",
    "tenant",
    "policy",
    "arm",
    "request_class",
    "line",
    "picker",
)

KEYS: dict[str, str] = {
    "hour": "date_trunc('hour', slot_start)",
    "day": "date_trunc('day', slot_start)::TIMESTAMP",
    **{name: name for name in _COLUMNS},
}
"""What can be summed by, and its SQL."""

_IT_JOULES = f"(sum(millijoules) / {MILLIJOULES_PER_JOULE} + coalesce(sum(host_joules), 0))"

_COUNTS = ("requests", "output_tokens")


def summary(
    connection: duckdb.DuckDBPyConnection,
    by: Sequence[str],
    since_unix_s: float | None = None,
    until_unix_s: float | None = None,
) -> list[dict[str, Any]]:
    """Rows of sums in the order of the keys, apart by kind of signal and by currency; None where nothing is known.

    Args:
        connection: from `heliotrope_epp.ledger.read.opened`.
        by: some of `KEYS`.
        since_unix_s: slots that begin earlier are left out.
        until_unix_s: slots that begin then or later are left out.
    """
    where, times = between(since_unix_s, until_unix_s)
    keys = "".join(f"{KEYS[name]} AS {name}, " for name in by)
    found = connection.execute(
        f"""SELECT {keys} signal_type, emission_factor, currency, electricity_currency,
                   sum(requests) AS requests, sum(output_tokens) AS output_tokens,
                   {_IT_JOULES} / {JOULES_PER_KWH} AS it_kwh,
                   sum(grams_co2e) AS grams_co2e, sum(embodied_grams_co2e) AS embodied_grams_co2e,
                   sum(water_liters) AS water_liters, sum(hardware_cost) AS hardware_cost,
                   sum(electricity_cost) AS electricity_cost
            FROM {TABLE} WHERE {where} GROUP BY ALL ORDER BY ALL""",  # noqa: S608 - of our own names
        times,
    )
    names = [column[0] for column in found.description or ()]
    return [
        {
            name: int(value) if name in _COUNTS and value is not None else value
            for name, value in zip(names, row, strict=True)
        }
        for row in found.fetchall()
    ]
