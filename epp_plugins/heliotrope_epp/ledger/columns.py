"""The columns of the ledger, once: in the journal, in Parquet and in queries. SQL here is made of these names alone."""

KEYS: dict[str, str] = {
    "picker": "VARCHAR",
    "slot_seconds": "INTEGER",
    "line": "VARCHAR",
    "region": "VARCHAR",
    "variant": "VARCHAR",
    "model": "VARCHAR",
    "asked_model": "VARCHAR",
    "tenant": "VARCHAR",
    "policy": "VARCHAR",
    "arm": "VARCHAR",
    "request_class": "VARCHAR",
    "measured": "BOOLEAN",
    "boundary": "VARCHAR",
    "pue": "DOUBLE",
    "wue_liters_per_kwh": "DOUBLE",
    "electricity_price_per_kwh": "DOUBLE",
    "electricity_currency": "VARCHAR",
    "price_per_hour": "DOUBLE",
    "currency": "VARCHAR",
    "embodied_grams_co2e_per_replica": "DOUBLE",
    "embodied_lifetime_seconds": "DOUBLE",
    "signal_type": "VARCHAR",
    "emission_factor": "VARCHAR",
    "signal_source": "VARCHAR",
    "signal_estimated": "BOOLEAN",
}
"""Beside the slot: what a row is about, with their DuckDB types."""

SUMS: dict[str, str] = {
    "requests": "BIGINT",
    "succeeded": "BIGINT",
    "without_usage": "BIGINT",
    "covered_requests": "DOUBLE",
    "prompt_tokens": "BIGINT",
    "cached_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "ttft_seconds": "DOUBLE",
    "ttft_requests": "BIGINT",
    "tpot_seconds": "DOUBLE",
    "tpot_requests": "BIGINT",
    "slo_requests": "BIGINT",
    "slo_violations": "BIGINT",
    "millijoules": "BIGINT",
    "host_joules": "DOUBLE",
    "idle_share_joules": "DOUBLE",
    "accelerator_seconds": "DOUBLE",
    "grams_co2e": "DOUBLE",
    "embodied_grams_co2e": "DOUBLE",
    "water_liters": "DOUBLE",
    "hardware_cost": "DOUBLE",
    "electricity_cost": "DOUBLE",
}
"""What adds up."""

SLOT = "slot_unix_s"
"""Start of the slot in the journal, Unix seconds."""
SLOT_START = "slot_start"
"""The same in Parquet and in queries: TIMESTAMP in UTC."""
OLDEST = "signal_age_seconds"
"""Of rows that are joined the largest holds."""

MAX_BATCH_BYTES = 48 * 1024 * 1024
"""Largest batch that is read: ten thousand rows of the longest names."""

_JOURNAL = {SLOT: "BIGINT", **KEYS, **SUMS, OLDEST: "DOUBLE"}


def batches() -> str:
    """SQL that reads journal segments, whose names are the parameter: a list `rows` per line, NULL where it is torn."""
    struct = ", ".join(f'"{name}" {kind}' for name, kind in _JOURNAL.items())
    return (
        "SELECT rows FROM read_json(?, format = 'newline_delimited', ignore_errors = true, "  # noqa: S608
        f"maximum_object_size = {MAX_BATCH_BYTES}, columns = {{rows: 'STRUCT({struct})[]'}})"
    )


def journal_rows(batches: str) -> str:
    """SQL of the single rows of some batches."""
    return f"SELECT unnest(rows, recursive := true) FROM ({batches}) WHERE rows IS NOT NULL"  # noqa: S608


def joined_rows(rows: str) -> str:
    """SQL of journal rows with equal keys joined, in the columns of Parquet."""
    keys = ", ".join(f'"{name}"' for name in KEYS)
    sums = ", ".join(f'sum("{name}")::{kind} AS "{name}"' for name, kind in SUMS.items())
    return (
        f"SELECT make_timestamp({SLOT} * 1000000) AS {SLOT_START}, {keys}, {sums}, max({OLDEST}) AS {OLDEST} "  # noqa: S608
        f"FROM ({rows}) GROUP BY {SLOT}, {keys}"
    )
