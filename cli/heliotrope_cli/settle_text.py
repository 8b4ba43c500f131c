"""What `heliotrope settle` prints, and its JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from rich import box
from rich.table import Table

from heliotrope.carbon.bootstrap import Interval
from heliotrope.carbon.settlement import UNKNOWN_REGION, Settled, Settlement
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, kwh_from_joules
from heliotrope.unknown import finite_or_none

VERSION = 1
"""Of the JSON document."""

_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Beside:
    """What has to be said beside a settlement."""

    unmeasured_requests: int
    pickers: int
    curtailment_credit: float | None


def document(settlement: Settlement, beside: Beside) -> dict[str, Any]:
    """The settlement as plain data; unknown is None."""
    return {
        "version": VERSION,
        "signal_type": settlement.kind.signal_type.value,
        "emission_factor": settlement.kind.emission_factor.value,
        "curtailment_credit": beside.curtailment_credit,
        "sources": dict(settlement.sources),
        "missing_regions": list(settlement.missing_regions),
        "unmeasured_requests": beside.unmeasured_requests,
        "pickers": beside.pickers,
        "block_seconds": settlement.block_seconds,
        "total": _part(settlement.total),
        "regions": {part.region or "unknown": _part(part) for part in settlement.regions},
        "arms_and_lines": {part.group or "unknown": _part(part) for part in settlement.groups},
    }


def lines(settlement: Settlement, beside: Beside) -> Iterator[str]:
    """What has to be said beside the numbers."""
    kind, total = settlement.kind, settlement.total
    alpha = beside.curtailment_credit
    credit = "" if alpha is None else f", curtailment credit α = {alpha:g}"
    yield f"Settled with {kind.signal_type.value} intensity of {kind.emission_factor.value} emissions{credit}."
    yield "Sources: " + ", ".join(f"{name}: {source}" for name, source in sorted(settlement.sources.items())) + "."
    yield (
        "Grams are operational: energy of the accelerators, and of their hosts where it is known, × PUE as recorded "
        "× intensity."
    )
    yield (
        f"Priced: {_share(total.settled_joules, total.it_joules)} of {kwh_from_joules(total.it_joules):,.3f} kWh, "
        f"{_share(total.estimated_joules, total.settled_joules)} of that with values that are not known to be measured."
    )
    if total.unpriced_joules:
        missing = f" (no series for {', '.join(settlement.missing_regions)})" if settlement.missing_regions else ""
        yield f"Unpriced: {kwh_from_joules(total.unpriced_joules):,.3f} kWh{missing}; it is in no number of grams."
    if total.other_kind_joules:
        yield (
            f"{kwh_from_joules(total.other_kind_joules):,.3f} kWh were priced at run time with another kind of signal: "
            "average and marginal, or lifecycle and direct, are never compared."
        )
    if beside.unmeasured_requests:
        yield f"{beside.unmeasured_requests} requests had no energy counter: their energy is unknown and not in here."
    if beside.pickers > 1:
        yield (
            f"{beside.pickers} pickers wrote this ledger: where they shared engines, idle, host and others' energy is "
            "in it once for each of them. Their requests' is not."
        )
    if total.compared_joules:
        yield (
            f"Change: of the energy that has a price both times; {total.change.confidence:.0%} intervals from a block "
            f"bootstrap with blocks of {_duration(settlement.block_seconds)}."
        )
        if not total.change.known:
            yield f"The time is too short for intervals: it makes {total.change.blocks} blocks."


def table(settlement: Settlement) -> Table:
    """Total, regions, and arms and lines."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "kWh", "recorded g", "settled g", "change %", "unpriced kWh"):
        shown.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for part in settlement.regions:
        shown.add_row(*_row("unknown region" if part.region == UNKNOWN_REGION else part.region or "", part))
    shown.add_section()
    for part in settlement.groups:
        shown.add_row(*_row(part.group or "", part))
    shown.add_section()
    shown.add_row(*_row("total", settlement.total))
    return shown


def _row(name: str, part: Settled) -> tuple[str, ...]:
    return (
        name,
        f"{kwh_from_joules(part.it_joules):,.4f}",
        f"{part.recorded_grams:,.2f}" if part.recorded_grams else _UNKNOWN,
        f"{part.settled_grams:,.2f}" if part.settled_joules else _UNKNOWN,
        _change(part.change) if part.compared_joules else _UNKNOWN,
        f"{kwh_from_joules(part.unpriced_joules):,.4f}",
    )


def _change(change: Interval) -> str:
    if not isfinite(change.estimate):
        return _UNKNOWN
    text = f"{change.estimate * 100.0:+.1f}"
    return f"{text} [{change.low * 100.0:+.1f}, {change.high * 100.0:+.1f}]" if change.known else text


def _part(part: Settled) -> dict[str, Any]:
    return {
        "it_joules": part.it_joules,
        "settled_joules": part.settled_joules,
        "settled_grams": part.settled_grams if part.settled_joules else None,
        "estimated_joules": part.estimated_joules,
        "unpriced_joules": part.unpriced_joules,
        "recorded_grams": part.recorded_grams,
        "other_kind_joules": part.other_kind_joules,
        "compared_joules": part.compared_joules,
        "compared_settled_grams": part.compared_settled_grams,
        "compared_recorded_grams": part.compared_recorded_grams,
        "change": finite_or_none(part.change.estimate),
        "change_low": finite_or_none(part.change.low),
        "change_high": finite_or_none(part.change.high),
        "confidence": part.change.confidence,
        "blocks": part.change.blocks,
    }


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0 %"


def _duration(seconds: int) -> str:
    for length, name in ((SECONDS_PER_DAY, "day"), (SECONDS_PER_HOUR, "hour"), (60.0, "minute")):
        if seconds >= length and seconds % length == 0:
            count = round(seconds / length)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds} s"
