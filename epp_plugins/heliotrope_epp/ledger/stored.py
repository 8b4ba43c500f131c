"""A ledger's energy as settlement takes it, and settled copies of a ledger."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from heliotrope.carbon.settlement import UNKNOWN_REGION, RegionSignal, SignalKind, StoredEnergy, intensity_over
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.units import JOULES_PER_KWH, MILLIJOULES_PER_JOULE
from heliotrope_epp.ledger import compaction
from heliotrope_epp.ledger.journal import sync_folder
from heliotrope_epp.ledger.read import TABLE, between

_IT_JOULES = f"(millijoules / {MILLIJOULES_PER_JOULE} + coalesce(host_joules, 0))"
_SUM_JOULES = f"(sum(millijoules) / {MILLIJOULES_PER_JOULE} + coalesce(sum(host_joules), 0))"
_SETTLED = "settled.parquet"


@dataclass(frozen=True, slots=True)
class Stored:
    """What there is to settle."""

    energy: StoredEnergy
    unmeasured_requests: int
    """Requests whose energy no counter saw: they have none to settle."""
    pickers: int
    """How many pickers wrote it."""


def stored_energy(
    connection: duckdb.DuckDBPyConnection, since_unix_s: float | None = None, until_unix_s: float | None = None
) -> Stored:
    """Read the view `ledger`, joined to what settlement tells apart.

    Args:
        connection: from `heliotrope_epp.ledger.read.opened`.
        since_unix_s: slots that begin earlier are left out.
        until_unix_s: slots that begin then or later are left out.
    """
    where, times = between(since_unix_s, until_unix_s)
    found = connection.execute(
        f"""SELECT epoch(slot_start)::BIGINT AS slot, slot_seconds::BIGINT AS seconds,
                   coalesce(region, '{UNKNOWN_REGION}') AS region,
                   CASE line WHEN 'request' THEN coalesce(arm, 'unknown arm') ELSE line END AS arm_or_line,
                   pue, signal_type, emission_factor,
                   {_SUM_JOULES} AS joules, sum(grams_co2e) AS grams
            FROM {TABLE} WHERE millijoules IS NOT NULL AND {where} GROUP BY ALL ORDER BY ALL""",  # noqa: S608
        times,
    ).fetchnumpy()
    types, factors = _texts(found["signal_type"]), _texts(found["emission_factor"])
    energy = StoredEnergy(
        slot_unix_s=_filled(found["slot"], 0).astype(np.int64),
        slot_seconds=_filled(found["seconds"], 0).astype(np.int64),
        regions=_texts(found["region"]),
        groups=_texts(found["arm_or_line"]),
        it_joules=_filled(found["joules"], np.nan).astype(np.float64),
        pue=_filled(found["pue"], np.nan).astype(np.float64),
        recorded_grams=_filled(found["grams"], np.nan).astype(np.float64),
        recorded_kinds=[
            SignalKind(SignalType(one), EmissionFactor(other)) if one and other else None
            for one, other in zip(types, factors, strict=True)
        ],
    )
    counted = connection.execute(
        f"""SELECT coalesce(sum(requests) FILTER (NOT measured), 0), count(DISTINCT picker)
            FROM {TABLE} WHERE {where}""",  # noqa: S608
        times,
    ).fetchone()
    unmeasured, pickers = (0, 0) if counted is None else counted
    return Stored(energy, int(unmeasured), int(pickers))


def write_settled(connection: duckdb.DuckDBPyConnection, signals: Mapping[str, RegionSignal], folder: Path) -> Path:
    """A copy of the ledger with settled grams in the place of the recorded ones, as a ledger's folder of its own.

    Rows that no signal covers have no grams in it.

    Raises:
        InvalidInputError: if the folder is there and not empty, or cannot be written.
    """
    target = folder / compaction.FOLDER / "settled" / _SETTLED
    try:
        if folder.exists() and any(folder.iterdir()):
            raise InvalidInputError(str(folder), "is not empty; a settled copy is written into a folder of its own")
        target.parent.mkdir(parents=True, exist_ok=True)
        _prices(connection, signals)
        partial = target.with_name(f"{uuid.uuid4().hex}.partial")
        name = str(partial).replace("'", "''")
        connection.execute(
            f"""COPY (
                SELECT l.* REPLACE (
                    {_IT_JOULES} / {JOULES_PER_KWH} * pue * intensity AS grams_co2e,
                    p.signal_type AS signal_type,
                    p.emission_factor AS emission_factor,
                    p.signal_source AS signal_source,
                    p.signal_estimated AS signal_estimated,
                    NULL::DOUBLE AS signal_age_seconds
                ) FROM {TABLE} l LEFT JOIN settled_prices p
                ON l.region = p.region AND epoch(l.slot_start)::BIGINT = p.slot AND l.slot_seconds = p.seconds
                AND l.pue IS NOT NULL AND l.millijoules IS NOT NULL
                ORDER BY slot_start
            ) TO '{name}' (FORMAT parquet, COMPRESSION zstd)"""  # noqa: S608
        )
        partial.rename(target)
        sync_folder(target.parent)
    except (OSError, duckdb.Error) as error:
        raise InvalidInputError(str(folder), f"cannot be written: {error}") from error
    return target


def _prices(connection: duckdb.DuckDBPyConnection, signals: Mapping[str, RegionSignal]) -> None:
    """A temporary table of each region's intensity per slot of the ledger."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE settled_prices (region VARCHAR, slot BIGINT, seconds BIGINT, intensity DOUBLE, "
        "signal_type VARCHAR, emission_factor VARCHAR, signal_source VARCHAR, signal_estimated BOOLEAN)"
    )
    for name, signal in signals.items():
        slots = connection.execute(
            f"SELECT DISTINCT epoch(slot_start)::BIGINT, slot_seconds::BIGINT FROM {TABLE} WHERE region = ?",  # noqa: S608
            [name],
        ).fetchall()
        priced = [(start, seconds, *intensity_over(signal.series, start, seconds)) for start, seconds in slots]
        priced = [each for each in priced if each[2] is not None]
        starts, lengths, means, guesses = zip(*priced, strict=True) if priced else ((), (), (), ())
        connection.execute(
            "INSERT INTO settled_prices SELECT ?, unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::DOUBLE[]), "
            "?, ?, ?, unnest(?::BOOLEAN[])",
            [
                name,
                list(starts),
                list(lengths),
                list(means),
                signal.kind.signal_type.value,
                signal.kind.emission_factor.value,
                signal.source,
                list(guesses),
            ],
        )


def _filled(column: Any, missing: float) -> Any:
    """A column of DuckDB, in which NULL is masked, as a plain one."""
    return np.ma.filled(column.astype(np.float64) if missing != missing else column, missing)


def _texts(column: Any) -> list[str]:
    return [str(text) if text else "" for text in np.ma.filled(column.astype(object), "")]
