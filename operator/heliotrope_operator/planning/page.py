"""What a picker says at `/v1/demand`: read tolerantly, as pickers may be older or newer than this program."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from heliotrope.errors import BadAnswerError
from heliotrope_operator.planning.tails import Buckets

PATH = "/v1/demand"
SCHEMA = 1
MAX_BYTES = 4 * 1024 * 1024
MAX_LINES = 10_000
MAX_BOUNDS = 64


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model; totals since the picker's start."""

    requests_total: float
    prompt_tokens_total: float
    output_tokens_total: float
    held: float


@dataclass(frozen=True, slots=True)
class EngineLine:
    """One engine as its own page said; None: unknown. Totals are of the engine's life."""

    asleep: bool | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    first_tokens_total: float | None = None
    first_token_seconds_total: float | None = None
    inter_tokens_total: float | None = None
    inter_token_seconds_total: float | None = None
    prompt_tokens_total: float | None = None
    computed_prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    first_token: Buckets | None = None
    output_token: Buckets | None = None


@dataclass(frozen=True, slots=True)
class PickerPage:
    """One picker's whole page."""

    instance: str
    time_unix_s: float
    started_unix_s: float
    models: Mapping[str, ModelLine]
    engines: Mapping[str, EngineLine]
    """By the name of the pod."""


def read(body: bytes, *, namespace: str, pool: str) -> PickerPage:
    """The page of a pool's picker.

    Raises:
        BadAnswerError: if it is none, of another schema, or of another pool.
    """
    try:
        document: Any = json.loads(body)
        if document["schema"] != SCHEMA:
            raise BadAnswerError(f"the picker's page has schema {document['schema']!r}; {SCHEMA} is understood")
        of = document["pool"]
        if of != {"namespace": namespace, "name": pool}:
            raise BadAnswerError(f"the picker serves the pool {of!r}, not {namespace}/{pool}")
        models, engines = document["models"], document.get("endpoints") or []
        if len(models) > MAX_LINES or len(engines) > MAX_LINES:
            raise BadAnswerError(f"the picker's page has more than {MAX_LINES} lines")
        return PickerPage(
            instance=str(document["instance"]),
            time_unix_s=_amount(document["time_unix_s"]),
            started_unix_s=_amount(document["started_unix_s"]),
            models={str(each["model"]): _model(each) for each in models},
            engines={str(each["name"]): _engine(each) for each in engines},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswerError(f"the picker's page cannot be read: {type(error).__name__}") from None


def _model(line: Mapping[str, Any]) -> ModelLine:
    return ModelLine(
        requests_total=_amount(line["requests_total"]),
        prompt_tokens_total=_amount(line["prompt_tokens_total"]),
        output_tokens_total=_amount(line["output_tokens_total"]),
        held=_amount(line["held"]),
    )


def _engine(line: Mapping[str, Any]) -> EngineLine:
    asleep = line.get("asleep")
    return EngineLine(
        asleep=asleep if isinstance(asleep, bool) else None,
        running=_known(line.get("running")),
        waiting=_known(line.get("waiting")),
        kv_usage=_known(line.get("kv_usage")),
        first_tokens_total=_known(line.get("first_tokens_total")),
        first_token_seconds_total=_known(line.get("first_token_seconds_total")),
        inter_tokens_total=_known(line.get("inter_tokens_total")),
        inter_token_seconds_total=_known(line.get("inter_token_seconds_total")),
        prompt_tokens_total=_known(line.get("prompt_tokens_total")),
        computed_prompt_tokens_total=_known(line.get("computed_prompt_tokens_total")),
        generation_tokens_total=_known(line.get("generation_tokens_total")),
        first_token=_buckets(line.get("first_token")),
        output_token=_buckets(line.get("output_token")),
    )


def _buckets(value: Any) -> Buckets | None:
    """A histogram whose bounds ascend and whose counts do not fall; None for anything else."""
    if not isinstance(value, Mapping):
        return None
    bounds, counts = value.get("upper_seconds"), value.get("cumulative")
    if not isinstance(bounds, list) or not isinstance(counts, list) or not 0 < len(bounds) <= MAX_BOUNDS:
        return None
    upper = tuple(each for bound in bounds if (each := _known(bound)) is not None)
    cumulative = tuple(each for count in counts if (each := _known(count)) is not None)
    if len(upper) != len(bounds) or len(cumulative) != len(bounds) + 1:
        return None
    if any(later <= earlier for earlier, later in pairwise(upper)):
        return None
    return None if any(later < earlier for earlier, later in pairwise(cumulative)) else Buckets(upper, cumulative)


def _amount(value: Any) -> float:
    known = _known(value)
    if known is None:
        raise ValueError(value)
    return known


def _known(value: Any) -> float | None:
    """A number that is finite and not below zero, as all of these are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and value >= 0 else None
