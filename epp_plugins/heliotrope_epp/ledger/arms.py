"""The ledger's requests by arm, class and slot: what `heliotrope.carbon.savings` compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.savings import ArmTotals, Metric
from heliotrope.errors import InvalidInputError
from heliotrope.units import joules_from_millijoules
from heliotrope_epp.ledger.read import TABLE, opened

_ARMS = (Arm.STEERED.value, Arm.HOLDOUT.value)
_GROUPS = (
    "slot_start, slot_seconds, policy, arm, coalesce(request_class, ''), coalesce(region, 'unknown region'), "
    "coalesce(variant, 'unknown variant'), measured, boundary, signal_type, emission_factor"
)
_SUMS = (
    "requests",
    "covered_requests",
    "millijoules",
    "host_joules",
    "idle_share_joules",
    "grams_co2e",
    "ttft_seconds",
    "ttft_requests",
    "tpot_seconds",
    "tpot_requests",
    "slo_requests",
    "slo_violations",
)


@dataclass(frozen=True, slots=True)
class LedgerArms:
    """Both arms of one policy."""

    policy: str | None
    """None: no enforced policy has decided on anything."""
    slot_seconds: float
    totals: tuple[ArmTotals, ...]
    coverage: dict[Arm, float]
    """Share of the arms' requests whose energy a counter saw."""
    caveats: tuple[str, ...]


def read_arms(
    folder: Path, *, policy: str | None = None, since_unix_s: float | None = None, until_unix_s: float | None = None
) -> LedgerArms:
    """Read the requests that an enforced policy decided on.

    Args:
        folder: the ledger's.
        policy: `namespace/name`; may be left out where there is one.
        since_unix_s: slots that begin earlier are left out.
        until_unix_s: slots that begin then or later are left out.

    Raises:
        InvalidInputError: if there is no ledger, or several policies and none is named, or the named one is not there.
    """
    with opened(folder) as connection:
        where, values = _where(since_unix_s, until_unix_s)
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in _SUMS)
        rows = connection.execute(
            f"SELECT epoch(slot_start), {_GROUPS}, {sums} FROM {TABLE} WHERE {where} "  # noqa: S608 - our own names
            f"GROUP BY {_GROUPS} ORDER BY ALL",
            values,
        ).fetchall()
    chosen = _policy(policy, sorted({row[3] for row in rows if row[3] is not None}))
    mine = [row for row in rows if row[3] == chosen]
    grams, caveats = _comparable_grams(mine)
    return LedgerArms(
        policy=chosen,
        slot_seconds=float(max((row[2] for row in mine), default=1)),
        totals=tuple(_totals(row, grams=grams) for row in mine),
        coverage=_coverage(mine),
        caveats=caveats,
    )


def _where(since_unix_s: float | None, until_unix_s: float | None) -> tuple[str, list[Any]]:
    where, values = "line = 'request' AND arm IN (?, ?)", list[Any](_ARMS)
    if since_unix_s is not None:
        where, values = f"{where} AND epoch(slot_start) >= ?", [*values, since_unix_s]
    if until_unix_s is not None:
        where, values = f"{where} AND epoch(slot_start) < ?", [*values, until_unix_s]
    return where, values


def _policy(asked: str | None, known: Sequence[str]) -> str | None:
    if asked is not None and asked not in known:
        there = f"there are {', '.join(known)}" if known else "there is none"
        raise InvalidInputError("--policy", f"{asked!r} has enforced nothing in this ledger and time; {there}")
    if asked is None and len(known) > 1:
        raise InvalidInputError("--policy", f"the ledger holds several policies; name one of {', '.join(known)}")
    return asked if asked is not None else next(iter(known), None)


def _comparable_grams(rows: Sequence[tuple[Any, ...]]) -> tuple[bool, tuple[str, ...]]:
    """Whether all grams mean the same, and what has to be said of them."""
    meanings = sorted({f"{row[10]} {row[11]}" for row in rows if row[10] is not None})
    caveats = []
    if len(meanings) > 1:
        caveats.append(
            f"grams are left out: the ledger holds {' and '.join(meanings)} signals, which are never compared; "
            "narrow the time with --since and --until, or re-price with `heliotrope settle`"
        )
    if len({row[9] for row in rows if row[8]}) > 1:
        caveats.append(
            "the hosts' energy is known for some variants only, and in grams and joules with idle only there"
        )
    return len(meanings) <= 1, tuple(caveats)


def _coverage(rows: Sequence[tuple[Any, ...]]) -> dict[Arm, float]:
    result = {}
    for arm in _ARMS:
        requests = sum(row[12] for row in rows if row[4] == arm)
        covered = sum(row[13] for row in rows if row[4] == arm)
        result[Arm(arm)] = covered / requests if requests else float("nan")
    return result


def _totals(row: tuple[Any, ...], *, grams: bool) -> ArmTotals:
    start, _, _, _, arm, name, region, variant, measured, _, signal, _ = row[:12]
    of = dict(zip(_SUMS, row[12:], strict=True))
    requests = int(of["requests"])
    joules = joules_from_millijoules(float(of["millijoules"]))
    sums = {
        Metric.TTFT: float(of["ttft_seconds"]),
        Metric.TPOT: float(of["tpot_seconds"]),
        Metric.SLO_VIOLATIONS: float(of["slo_violations"]),
    }
    counts = {
        Metric.TTFT: int(of["ttft_requests"]),
        Metric.TPOT: int(of["tpot_requests"]),
        Metric.SLO_VIOLATIONS: int(of["slo_requests"]),
    }
    if measured:
        sums |= {
            Metric.JOULES: joules,
            Metric.JOULES_WITH_IDLE: joules + float(of["host_joules"]) + float(of["idle_share_joules"]),
        }
        counts |= {Metric.JOULES: requests, Metric.JOULES_WITH_IDLE: requests}
        if grams and signal is not None:
            sums[Metric.GRAMS] = float(of["grams_co2e"])
            counts[Metric.GRAMS] = requests
    return ArmTotals(float(start), name, Arm(arm), requests, sums, counts, f"{region}, {variant}")
