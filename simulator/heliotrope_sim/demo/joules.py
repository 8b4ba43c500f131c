"""Each request's joules three times: as the picker expected them, as it measured them, and as the engine knows them."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from heliotrope_sim.demo.client import RequestResult
from heliotrope_sim.demo.fleet import RunningEngine

NAN = float("nan")
# What sidecars add to a request's id for each of its images.
_ENCODING = re.compile(r"-enc-\d+$")


@dataclass(frozen=True, slots=True)
class RequestJoules:
    """One request's share of its engine's accelerators, without idle energy; NaN where nobody says."""

    request_id: str
    region: str | None
    estimated: float
    """By the decision, before the request ran."""
    attributed: float
    """By the picker's metering, from the engine's energy and token counters."""
    true: float
    """By the emulated engine, which knows every step."""


async def true_joules(engines: Sequence[RunningEngine]) -> dict[str, float]:
    """What emulated engines say of their last finished requests, by response id."""
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        pages = await asyncio.gather(*(client.get(f"{engine.url}/emulator/v1/requests") for engine in engines))
    return joules_of_responses([each for page in pages for each in page.json()["requests"]])


def joules_of_responses(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The joules of each response: all that any engine drew for it, by encoding, prefill, transfer and decode."""
    totals: dict[str, float] = {}
    for record in records:
        response_id = _ENCODING.sub("", record["response_id"])
        totals[response_id] = totals.get(response_id, 0.0) + float(record["joules"])
    return totals


def request_joules(
    results: Sequence[RequestResult],
    regions: Mapping[str, str],
    decisions: Sequence[Mapping[str, Any]],
    true: Mapping[str, float],
) -> list[RequestJoules]:
    """Bring the three together, one row per answered request.

    Args:
        results: what the clients saw.
        regions: region by engine.
        decisions: what the picker explains.
        true: `true_joules`.
    """
    explained = {decision["request_id"]: decision for decision in decisions}
    rows = []
    for result in results:
        if result.failed:
            continue
        decision = explained.get(result.request_id)
        rows.append(
            RequestJoules(
                request_id=result.request_id,
                region=regions.get(result.engine or ""),
                estimated=_estimated(decision),
                attributed=_attributed(decision),
                true=true.get(result.response_id or "", NAN),
            )
        )
    return rows


def relative_errors(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """How far the first of each pair is from the second, over those pairs where both are known and positive."""
    known = np.array([(a, b) for a, b in pairs if a > 0.0 and b > 0.0]).reshape(-1, 2)
    if not len(known):
        return {"requests": 0, "median": None, "mean": None, "total": None}
    error = np.abs(known[:, 0] - known[:, 1]) / known[:, 1]
    return {
        "requests": len(known),
        "median": float(np.median(error)),
        "mean": float(np.mean(error)),
        "total": float(known[:, 0].sum() / known[:, 1].sum() - 1.0),
    }


def _estimated(decision: Mapping[str, Any] | None) -> float:
    carbon = None if decision is None else decision.get("carbon_decision")
    if not carbon:
        return NAN
    known = (row["attributed_joules"] for row in carbon["candidates"] if row["chosen"])
    return next((float(joules) for joules in known if joules is not None), NAN)


def _attributed(decision: Mapping[str, Any] | None) -> float:
    measured = None if decision is None else decision.get("measured")
    energy = None if measured is None else measured["energy"]
    return NAN if energy is None else float(energy["joules"])
