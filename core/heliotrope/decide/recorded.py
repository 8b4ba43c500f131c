"""Reads the document of a decision back (`heliotrope.decide.explanation`), as `/debug/decisions` or a file gives it.

Files come from anywhere: whatever is wrong is refused with the path of the key, keys of later writers are let through,
and absent is unknown.
"""

import json
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heliotrope.decide.explanation import VERSION
from heliotrope.errors import InvalidInputError

MAX_BYTES = 16 * 1024 * 1024
"""Larger documents are refused."""

Number = float | None
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Candidate(_Part):
    """One endpoint that might have been chosen; units are in the names, None is unknown."""

    endpoint: str
    region: str | None = None
    prefill_endpoint: str | None = None
    """Where the prompt is prefilled; None: nobody said, so at the endpoint."""
    prefill_region: str | None = None
    chosen: bool = False
    within_constraints: bool | None = None
    lost_because: str | None = None
    kv_action: str | None = None
    sources: dict[str, str] = {}
    """Which model an estimate is from: learned or analytic, by what is estimated."""
    ttft_seconds: Number = None
    ttft_relative_error: Number = None
    tpot_seconds: Number = None
    tpot_relative_error: Number = None
    queue_ttft_seconds: Number = None
    service_seconds: Number = None
    energy_joules: Number = None
    energy_relative_error: Number = None
    incremental_joules: Number = None
    attributed_joules: Number = None
    encode_endpoints: list[str] | None = None
    """Where its images are encoded; empty: where it is prefilled; None: it has none."""
    encode_regions: list[str | None] | None = None
    encode_seconds: Number = None
    encode_joules: Number = None
    encode_grams_co2e: Number = None
    prefiller_joules: Number = None
    intensity_g_per_kwh: Number = None
    grams_co2e: Number = None
    water_liters: Number = None
    cost: Number = None
    risk: Number = None
    failure_rate: Number = None
    headroom_watts: Number = None
    throttled: bool | None = None
    base_score: Number = None
    quality: Number = None
    cached_tokens: Number = None
    kv_source: str | None = None
    """The endpoint that blocks are pulled from."""
    transfer_seconds: Number = None
    transfer_joules: Number = None
    running: Number = None
    waiting: Number = None


class _Taken(_Part):
    """What is compared of two plans; None where it is unknown."""

    energy_joules: Number = None
    incremental_joules: Number = None
    grams_co2e: Number = None
    water_liters: Number = None
    cost: Number = None
    ttft_seconds: Number = None
    service_seconds: Number = None


class Plan(_Taken):
    """A whole plan with what it is estimated to take: what a policy would have done, or what was done instead."""

    endpoint: str
    """Where it decodes."""
    region: str | None = None
    prefill_endpoint: str | None = None
    prefill_region: str | None = None
    encode_endpoints: tuple[str, ...] | None = Field(default=None, strict=False)
    """Empty: where it prefills; None: there are no images."""
    encode_regions: tuple[str | None, ...] | None = Field(default=None, strict=False)
    kv_action: str | None = None
    kv_source: str | None = None


class Saving(_Taken):
    """By how much the policy's plan was estimated to take less; None where that is unknown."""


class PlanComparison(_Part):
    """What ran beside what the policy would have done (`heliotrope.decide.compared`)."""

    ran: Plan | None = None
    advised: Plan | None = None
    same: bool | None = None
    modelled_saving: Saving = Saving()


class Region(_Part):
    """A region's signal at the time of the decision."""

    name: str
    freshness: str = "unknown"
    intensity_g_per_kwh: Number = None
    age_seconds: Number = None
    signal_type: str | None = None
    emission_factor: str | None = None
    estimated: bool | None = None
    source: str | None = None
    pue: Number = None


class Objective(_Part):
    """How plans were compared."""

    mode: str
    order: tuple[str, ...] = Field(default=(), strict=False)
    tolerances: dict[str, float] = {}
    weights: dict[str, float] = {}
    soft_weight: Number = None
    score_tolerance: Number = None
    choices: Count | None = None


class Constraints(_Part):
    """What held for every plan."""

    ttft_slo_seconds: Number = None
    ttft_slo_from: str = "policy"
    tpot_slo_seconds: Number = None
    tpot_slo_from: str = "policy"
    certainty_standard_deviations: Number = None
    quality_floor: Number = None
    allowed_regions: tuple[str, ...] | None = Field(default=None, strict=False)
    largest_region_share: Number = None
    region_shares: dict[str, float] | None = None
    least_headroom_watts: Number = None
    avoid_throttled: bool | None = None


class Overrides(_Part):
    """What the request asked to change."""

    applied: tuple[str, ...] = Field(default=(), strict=False)
    refused: dict[str, str] = {}
    """With the reason."""


class Session(_Part):
    """What became of the session that the request belongs to."""

    movement: str
    because: str = ""
    turns: Count = 0
    previous_endpoint: str | None = None
    history_tokens: Count = 0
    identified_by: str = ""
    gate_value: Number = None
    gate_threshold: Number = None


class CarbonDecision(_Part):
    """What a policy decided, or would have."""

    version: Literal[1] = 1
    time_unix_s: Number = None
    request_id: str = ""
    model: str | None = None
    streaming: bool | None = None
    prompt_tokens: Count | None = None
    expected_output_tokens: Number = None
    policy: str
    policy_revision: str = ""
    service_class: str | None = None
    event: str | None = None
    overrides: Overrides = Overrides()
    enforced: bool = True
    arm: str = "unsteered"
    request_class: str = ""
    objective: Objective | None = None
    constraints: Constraints | None = None
    outcome: str
    relaxed: tuple[str, ...] = Field(default=(), strict=False)
    endpoint: str | None
    decided_by: str
    policy_would_choose: str | None = None
    policy_would_choose_plan: Plan | None = None
    dropped_terms: dict[str, str] = {}
    models_unused: str | None = None
    """Why learned models were not asked; None: they were, or there are none."""
    session: Session | None = None
    regions: tuple[Region, ...] = Field(default=(), strict=False)
    candidates: tuple[Candidate, ...] = Field(strict=False)
    candidates_omitted: Count = 0

    @property
    def winner(self) -> Candidate | None:
        """The chosen one; None if nothing was feasible."""
        return next((c for c in self.candidates if c.chosen), None)


class Scored(_Part):
    """An endpoint as the scorers see it."""

    endpoint: str
    score: Number = None
    scores: dict[str, Number] = {}
    cached_tokens: Number = None


class Profile(_Part):
    """One scheduling profile that ran."""

    profile: str
    weights: dict[str, float] = {}
    picker: str | None = None
    endpoints: tuple[str, ...] = Field(default=(), strict=False)
    reason: str = ""
    candidates: tuple[Scored, ...] = Field(default=(), strict=False)


class ModelOption(_Part):
    """A model that might have answered."""

    model: str
    quality: Number = None
    available: bool = False
    allowed: bool = False
    effort: str | None = None


class ModelRecord(_Part):
    """Which models might have answered, and which did."""

    group: str
    default: str
    quality_floor: Number = None
    least_quality: Number = None
    predictor: str = ""
    task: str = ""
    fallback: str | None = None
    withheld_because: str | None = None
    """Why the default answers whatever is allowed here; None: the verdict holds."""
    router_joules: Number = None
    models: tuple[ModelOption, ...] = Field(default=(), strict=False)
    applied: bool = False
    chosen: str | None = None
    why: str | None = None


class Scheduling(_Part):
    """What the configured pipeline did."""

    primary: str
    models: ModelRecord | None = None
    profiles: tuple[Profile, ...] = Field(default=(), strict=False)


class MeasuredEnergy(_Part):
    """What counters attributed to the request."""

    joules: float
    idle_joules: Number = None
    host_joules: Number = None
    coverage: Number = None


class Measured(_Part):
    """How the request went."""

    status: int | None = None
    cause: str | None = None
    ttft_seconds: Number = None
    tpot_seconds: Number = None
    broke_slo: bool | None = None
    output_tokens: Count | None = None
    energy: MeasuredEnergy | None = None


class Recorded(_Part):
    """One routed or refused request."""

    request_id: str = ""
    time_unix_s: Number = None
    model: str | None = None
    streaming: bool | None = None
    prompt_tokens: Count | None = None
    expected_output_tokens: Number = None
    held_seconds: Number = None
    """How long it waited for an engine to start or wake."""
    asleep: tuple[str, ...] = Field(default=(), strict=False)
    """Endpoints that were no candidates because their engines slept."""
    endpoint: str | None = None
    """Where it was sent; None if it was refused."""
    reason: str = ""
    scheduling: Scheduling | None = None
    carbon_decision: CarbonDecision | None = None
    carbon_decision_enforced: bool = False
    plan_comparison: PlanComparison | None = None
    """None where the policy was followed, or there is none."""
    measured: Measured | None = None


def read(text: str | bytes) -> tuple[Recorded, dict[str, Any]]:
    """Read a document: a picker's record, or the bare explanation of a decision.

    Returns:
        What it says, and the document itself.

    Raises:
        InvalidInputError: if it is not such a document; `path` is the key at fault.
    """
    if len(text) > MAX_BYTES:
        raise InvalidInputError("", f"is larger than {MAX_BYTES // 1024 // 1024} MiB, so no decision")
    try:
        document = _parsed(text)
        _finite(document, "")
    except RecursionError as error:
        raise InvalidInputError("", "is nested too deeply, so no decision") from error
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        raise InvalidInputError("version", f"must be {VERSION}, not {_short(version)}; another Heliotrope wrote this")
    try:
        if "carbon_decision" in document:
            return Recorded.model_validate(document), document
        decision = CarbonDecision.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInputError(_path(first["loc"]), f"{first['msg']} (is {_short(first['input'])})") from error
    return _alone(decision), document


def _parsed(text: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInputError("", f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInputError("", "is no JSON object, so no decision")
    return document


def _finite(value: Any, path: str) -> None:
    """JSON knows no NaN, and Python's reader lets it in."""
    if isinstance(value, float) and not isfinite(value):
        raise InvalidInputError(path, f"must be a finite number or null, not {value}")
    if isinstance(value, dict):
        for key, item in value.items():
            _finite(item, f"{path}.{_short(key)}" if path else _short(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _finite(item, f"{path}[{index}]")


def _alone(decision: CarbonDecision) -> Recorded:
    """A decision without a picker around it is taken to have been followed."""
    return Recorded(
        request_id=decision.request_id,
        time_unix_s=decision.time_unix_s,
        model=decision.model,
        streaming=decision.streaming,
        prompt_tokens=decision.prompt_tokens,
        expected_output_tokens=decision.expected_output_tokens,
        endpoint=decision.endpoint,
        carbon_decision=decision,
        carbon_decision_enforced=True,
    )


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{_short(part)}" if text else _short(part)
    return text


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else "�" for c in text[:61])
    return text if len(text) <= 60 else f"{text[:60]}…"
