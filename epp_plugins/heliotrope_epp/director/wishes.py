"""What a request asks for by its headers (`docs/policies.md`), and which of them are not the engine's business."""

from collections.abc import Callable
from typing import TypeVar

from heliotrope.decide.asked import NOTHING_ASKED, Asked, parse_objective, parse_priority, parse_regions
from heliotrope.decide.policy import Override, Provenance
from heliotrope.errors import InvalidInputError
from heliotrope.units import seconds_from_milliseconds
from heliotrope_epp.plugins.models.router import TASK_HEADER
from heliotrope_epp.transport.interface import Headers, Request

CLASS_HEADER = "x-heliotrope-class"
PRIORITY_HEADER = "x-heliotrope-priority"
OBJECTIVE_HEADER = "x-heliotrope-objective"
REGIONS_HEADER = "x-heliotrope-regions"
DEADLINE_HEADER = "x-heliotrope-deadline"
REGION_HEADER = "x-heliotrope-region"
"""What the region tier says by default of the region that it chose."""
INFERENCE_OBJECTIVE_HEADERS = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
TTFT_SLO_HEADERS = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TPOT_SLO_HEADERS = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")

OWN_HEADERS = (CLASS_HEADER, PRIORITY_HEADER, OBJECTIVE_HEADER, REGIONS_HEADER, DEADLINE_HEADER, REGION_HEADER)
"""Removed before the engine, whatever becomes of them."""
REFUSED_HEADER = "x-heliotrope-refused"
"""On the answer: what the request asked for and did not get, each with the reason."""
MAX_NAME_LENGTH = 253

T = TypeVar("T")


def asked_of(request: Request, priorities: Callable[[str], int | None] = lambda _name: None) -> Asked:
    """The wishes of a request.

    Args:
        request: for its headers.
        priorities: the priority of an InferenceObjective by name; None where it is not known.

    Raises:
        InvalidInputError: if a header cannot be read; its name is the path.
    """
    name = _first(request, INFERENCE_OBJECTIVE_HEADERS)
    service_class = _named(request, CLASS_HEADER)
    priority = _read(request, PRIORITY_HEADER, parse_priority)
    objective = _read(request, OBJECTIVE_HEADER, parse_objective)
    regions = _read(request, REGIONS_HEADER, parse_regions)
    ttft, tpot = _slo_seconds(request, TTFT_SLO_HEADERS), _slo_seconds(request, TPOT_SLO_HEADERS)
    wishes = (name, service_class, priority, objective, regions, ttft, tpot)
    if all(wish is None for wish in wishes):
        return NOTHING_ASKED
    if priority is None and name is not None:
        priority = priorities(name)
    order, weights = objective or ((), None)
    return Asked(
        service_class=service_class,
        inference_objective=name,
        priority=priority,
        ttft_slo_seconds=ttft,
        tpot_slo_seconds=tpot,
        order=order,
        weights=weights,
        regions=regions,
    )


def to_remove(request: Request, provenance: Provenance | None) -> tuple[str, ...]:
    """Headers that the engine is not to see: our own, and a promise that the request does not get."""
    names: tuple[str, ...] = (*OWN_HEADERS, TASK_HEADER)
    if provenance is not None and any(override is Override.SLO for override, _ in provenance.refused):
        names = (*names, *TTFT_SLO_HEADERS, *TPOT_SLO_HEADERS)
    return tuple(name for name in names if request.header(name) is not None)


def refusals(provenance: Provenance | None) -> Headers:
    """What tells the client; empty if it got everything."""
    if provenance is None or not provenance.refused:
        return ()
    return ((REFUSED_HEADER, "; ".join(f"{override.value}: {reason}" for override, reason in provenance.refused)),)


def _first(request: Request, names: tuple[str, ...]) -> str | None:
    return next((text for name in names if (text := _named(request, name)) is not None), None)


def _named(request: Request, header: str) -> str | None:
    """A name out of a header; one that no object can have is none."""
    text = request.header(header)
    return text.strip() if text is not None and 0 < len(text.strip()) <= MAX_NAME_LENGTH else None


def _read(request: Request, header: str, parse: Callable[[str], T]) -> T | None:
    text = request.header(header)
    if text is None:
        return None
    try:
        return parse(text)
    except InvalidInputError as error:
        raise InvalidInputError(header, error.problem) from error


def _slo_seconds(request: Request, names: tuple[str, ...]) -> float | None:
    """The client's SLO from the first of these headers that is there.

    Raises:
        InvalidInputError: if it is not a positive number of milliseconds.
    """
    for name in names:
        text = request.header(name)
        if text is None:
            continue
        try:
            milliseconds = float(text)
        except ValueError:
            milliseconds = 0.0
        if not 0.0 < milliseconds < 1e9:
            raise InvalidInputError(name, "must be a positive number of milliseconds")
        return seconds_from_milliseconds(milliseconds)
    return None
