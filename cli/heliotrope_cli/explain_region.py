"""A placement of the region tier in words."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from heliotrope.decide.recorded import MAX_BYTES
from heliotrope.errors import InvalidInputError
from heliotrope_cli.quantities import seconds, shown


class RegionPlacement(BaseModel):
    """What `/debug/decisions/{id}` of a region scheduler says of one request."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    request_id: str
    model: str
    prompt_tokens: int
    region: str | None
    reason: str
    scheduler: str
    outcome: str
    fallback: str | None
    session: str | None
    window: int
    window_requests: int
    window_seconds: float
    solver_seconds: float
    held_seconds: float
    gap: float | None
    state_age_seconds: float | None
    carbon_counts: bool


def read(text: str | bytes) -> tuple[RegionPlacement, dict[str, Any]] | None:
    """The placement that a document holds; None: it is no region scheduler's.

    Raises:
        InvalidInputError: if it says that it is one, and is not.
    """
    if len(text) > MAX_BYTES:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("tier") != "region":
        return None
    try:
        return RegionPlacement.model_validate(document), document
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInputError(".".join(str(part) for part in first["loc"]), first["msg"]) from error


def sentences(p: RegionPlacement) -> Sequence[str]:
    """For a person who asks why."""
    where = "went nowhere" if p.region is None else f"went to region {p.region}"
    lines = [
        f"Request {shown(p.request_id)} for {shown(p.model)} ({p.prompt_tokens} prompt tokens) {where}: {p.reason}.",
        f"{p.scheduler} assigned it with {p.window_requests - 1} others in window {p.window}, {_outcome(p)}.",
        f"It waited {seconds(p.window_seconds)} in the window; the assignment took {seconds(p.solver_seconds)}.",
    ]
    if p.held_seconds > 0.0:
        lines.append(f"Before that it was held for {seconds(p.held_seconds)} in the queue of requests with a deadline.")
    if p.state_age_seconds is not None:
        lines.append(f"The region's state was {seconds(p.state_age_seconds)} old.")
    if p.session is not None:
        lines.append(f"Its session: {p.session}.")
    if not p.carbon_counts:
        lines.append("Carbon did not count: the intensity of some region that it might go to was not known.")
    return lines


def _outcome(p: RegionPlacement) -> str:
    if p.fallback is not None:
        return f"in the place of the policy's scheduler ({p.fallback})"
    if p.gap is None:
        return f"outcome {p.outcome}"
    return f"outcome {p.outcome} within {p.gap:.2%} of the bound"
