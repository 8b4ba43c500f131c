"""What `heliotrope savings` prints, and its JSON."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from rich.table import Table
from rich.text import Text

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.bootstrap import Interval
from heliotrope.carbon.savings import (
    MIN_BLOCKS,
    MIN_REQUESTS,
    RESOLVED_CHANGE,
    Comparison,
    Metric,
    Savings,
    Verdict,
    wording,
)
from heliotrope.unknown import finite_or_none

VERSION = 1
"""Of the JSON document."""

_TITLES: Mapping[Metric, tuple[str, float, str]] = {
    Metric.JOULES: ("energy per request", 1.0, "J"),
    Metric.JOULES_WITH_IDLE: ("energy with host and idle", 1.0, "J"),
    Metric.GRAMS: ("emissions per request", 1e3, "mgCO2e"),
    Metric.TTFT: ("TTFT, mean", 1e3, "ms"),
    Metric.TPOT: ("TPOT, mean", 1e3, "ms"),
    Metric.SLO_VIOLATIONS: ("broken promises", 1e2, "%"),
}
_NO_HOLDOUT = (
    "Set spec.holdoutPercent in the CarbonPolicy (and enforcement: Enforce) to keep a share of the requests blind to "
    "carbon; then this command compares both."
)


def document(savings: Savings, *, policy: str | None, coverage: Mapping[Arm, float], caveats: tuple[str, ...]) -> Any:
    """The comparison as plain data; unknown is None."""
    return {
        "version": VERSION,
        "policy": policy,
        "savings_are": savings.evidence.value,
        "wording": wording(holdout=savings.requests[Arm.HOLDOUT] > 0),
        "start_unix_s": finite_or_none(savings.start_unix_s),
        "end_unix_s": finite_or_none(savings.end_unix_s),
        "slot_seconds": savings.slot_seconds,
        "block_seconds": savings.block_seconds,
        "requests": {arm.value: savings.requests[arm] for arm in (Arm.STEERED, Arm.HOLDOUT)},
        "energy_coverage": {arm.value: finite_or_none(share) for arm, share in coverage.items()},
        "overall": {c.metric.value: _comparison(c) for c in savings.overall},
        "classes": [
            {"class": c.name, "share": c.share, **{m.metric.value: _comparison(m) for m in c.comparisons}}
            for c in savings.classes
        ],
        "interference": {
            "share_of_holdout_beside_steered": finite_or_none(savings.shared_share),
            "beside": f"in the same region and variant within {savings.slot_seconds:g} s",
            "text": savings.interference,
        },
        "caveats": list(caveats),
    }


def _comparison(c: Comparison) -> dict[str, Any]:
    return {
        "steered_mean": finite_or_none(c.steered_mean),
        "holdout_mean": finite_or_none(c.holdout_mean),
        "steered_requests": c.steered_requests,
        "holdout_requests": c.holdout_requests,
        "change": _interval(c.change),
        "difference": _interval(c.difference),
        "blocks": c.difference.blocks,
        "verdict": c.verdict.value,
        "holdout_requests_needed": c.requests_needed,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "estimate": finite_or_none(interval.estimate),
        "low": finite_or_none(interval.low),
        "high": finite_or_none(interval.high),
        "confidence": interval.confidence,
    }


def lines(
    savings: Savings, *, policy: str | None, coverage: Mapping[Arm, float], caveats: tuple[str, ...]
) -> list[str]:
    """The sentences above and below the tables."""
    if policy is None:
        return [f"No enforced policy has decided on a request here. Savings are {wording(holdout=False)}.", _NO_HOLDOUT]
    steered, held = savings.requests[Arm.STEERED], savings.requests[Arm.HOLDOUT]
    head = (
        f"Policy {policy}, {_time(savings.start_unix_s)} to {_time(savings.end_unix_s)}: {steered:,} requests steered, "
        f"{held:,} held out ({held / (steered + held):.1%})."
    )
    if not held:
        return [head, f"Savings are {wording(holdout=False)}.", _NO_HOLDOUT]
    found = [_sentence(c, savings) for c in savings.overall if c.metric in (Metric.GRAMS, Metric.JOULES)]
    covered = ", ".join(f"{arm.value} {share:.1%}" for arm, share in coverage.items() if isfinite(share))
    intervals = (
        f"Intervals are {savings.overall[0].difference.confidence:.0%} block-bootstrap intervals over blocks of "
        f"{_span(savings.block_seconds)}. Counters saw the energy of {covered} of the requests."
    )
    interference = (
        f"{savings.shared_share:.0%} of the held-out requests ended in a region, variant and "
        f"{savings.slot_seconds:g} s in which steered ones did too. {savings.interference}"
    )
    return [head, *found, intervals, interference, *(f"Note: {caveat}." for caveat in caveats)]


def _sentence(c: Comparison, savings: Savings) -> str:
    what = _TITLES[c.metric][0].capitalize()
    if c.verdict is Verdict.NOT_ENOUGH:
        return f"{what}: not enough to compare. {_needs(c, savings)}"
    change = c.change
    if c.verdict is Verdict.SAVING:
        interval = f"{-change.high:.1%} to {-change.low:.1%}"
        return f"{what}: {-change.estimate:.1%} saved ({interval}), {wording(holdout=True)}."
    if c.verdict is Verdict.INCREASE:
        interval = f"{change.low:.1%} to {change.high:.1%}"
        return f"{what}: {change.estimate:.1%} more ({interval}), {wording(holdout=True)}."
    needed = ""
    if c.requests_needed is not None:
        needed = (
            f" To tell a change of {RESOLVED_CHANGE:.0%} from none takes about {c.requests_needed:,} held-out "
            f"requests; there are {c.holdout_requests:,}."
        )
    return f"{what}: no difference can be told ({_signed(c.change.low)} to {_signed(c.change.high)}).{needed}"


def _needs(c: Comparison, savings: Savings) -> str:
    parts = []
    if min(c.holdout_requests, c.steered_requests) < MIN_REQUESTS:
        parts.append(
            f"at least {MIN_REQUESTS} requests of known value in each arm (there are {c.holdout_requests:,} held out "
            f"and {c.steered_requests:,} steered)"
        )
    if c.difference.blocks < MIN_BLOCKS:
        parts.append(
            f"at least {MIN_BLOCKS} blocks of {_span(savings.block_seconds)} of time (there are {c.difference.blocks})"
        )
    return f"Needed: {' and '.join(parts) or 'requests in more blocks of time'}."


def overall_table(savings: Savings) -> Table:
    """One row per metric."""
    table = Table(title="Both arms, classes weighed alike")
    for column in ("", "held out", "steered", "change", "interval", "verdict"):
        table.add_column(column, justify="left" if column in ("", "verdict") else "right")
    for c in savings.overall:
        table.add_row(*_cells(c))
    return table


def class_table(savings: Savings, metric: Metric) -> Table:
    """One row per class."""
    table = Table(title=f"By class: {_TITLES[metric][0]}")
    for column in ("class", "share", "held out", "steered", "change", "interval", "verdict"):
        table.add_column(column, justify="left" if column in ("class", "verdict") else "right", overflow="fold")
    for stratum in savings.classes:
        for c in stratum.comparisons:
            if c.metric is metric:
                table.add_row(Text(_shown(stratum.name)), f"{stratum.share:.1%}", *_cells(c)[1:])
    return table


def _cells(c: Comparison) -> tuple[str, ...]:
    title, factor, unit = _TITLES[c.metric]
    interval = "–"
    if c.verdict is not Verdict.NOT_ENOUGH:
        interval = (
            f"{_signed(c.change.low)} to {_signed(c.change.high)}"
            if c.change.known
            else f"{c.difference.low * factor:+.3g} to {c.difference.high * factor:+.3g} {unit}"
        )
    return (
        title,
        _number(c.holdout_mean * factor, unit),
        _number(c.steered_mean * factor, unit),
        _signed(c.change.estimate) if c.verdict is not Verdict.NOT_ENOUGH and isfinite(c.change.estimate) else "–",
        interval,
        c.verdict.value,
    )


def _number(value: float, unit: str) -> str:
    return f"{value:,.4g} {unit}" if isfinite(value) else "unknown"


def _signed(share: float) -> str:
    return f"{share:+.1%}"


def _span(seconds: float) -> str:
    for name, length in (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0)):
        if seconds >= length:
            count = seconds / length
            return f"{count:g} {name}{'' if count == 1 else 's'}"
    return f"{seconds:g} s"


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%MZ") if isfinite(unix_s) else "unknown"


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text)
