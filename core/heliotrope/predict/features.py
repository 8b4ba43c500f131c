"""The rows that learned models see: one of a request at an endpoint, one of an engine's step.

Every feature is declared here with its unit, kind and group, and rows are built nowhere else: what a model was trained
on is what it is asked about. NaN means unknown. Categories are small integers computed from the text alone, so that
every process gives the same text the same code; two texts may share one code, and the numeric descriptors of the
hardware still tell them apart.

One model serves a heterogeneous pool because the hardware is described by numbers (what a token costs there in seconds
and joules), and because the analytic model's own estimate is a feature wherever an engine profile exists.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
Matrix = NDArray[np.float64]
"""Rows by features, shape (n, F)."""

CATEGORIES = 4096
"""Codes of texts are below this."""
NAN = float("nan")


class Group(StrEnum):
    """What a feature describes; ablations leave whole groups out."""

    REQUEST = "request"
    STATE = "state"
    POWER = "power"
    ANALYTIC = "analytic"
    HARDWARE = "hardware"


@dataclass(frozen=True, slots=True)
class Feature:
    """One column."""

    name: str
    unit: str
    group: Group
    categorical: bool = False


HARDWARE_FEATURES = (
    Feature("accelerator", "code", Group.HARDWARE, categorical=True),
    Feature("model", "code", Group.HARDWARE, categorical=True),
    Feature("role", "code", Group.HARDWARE, categorical=True),
    Feature("tensor_parallel", "accelerators", Group.HARDWARE),
    Feature("max_num_seqs", "requests", Group.HARDWARE),
    Feature("max_num_batched_tokens", "tokens", Group.HARDWARE),
    Feature("kv_capacity_tokens", "tokens", Group.HARDWARE),
    Feature("prefill_base_seconds", "s", Group.HARDWARE),
    Feature("prefill_seconds_per_token", "s/token", Group.HARDWARE),
    Feature("decode_base_seconds", "s", Group.HARDWARE),
    Feature("decode_seconds_per_request", "s", Group.HARDWARE),
    Feature("prefill_joules_per_token", "J/token", Group.HARDWARE),
    Feature("decode_base_joules", "J", Group.HARDWARE),
    Feature("decode_joules_per_request", "J", Group.HARDWARE),
    Feature("idle_watts", "W", Group.HARDWARE),
)
"""In the order of the fields of `HardwareDescription`."""

FEATURES = (
    Feature("prompt_tokens", "tokens", Group.REQUEST),
    Feature("cached_tokens", "tokens", Group.REQUEST),
    Feature("uncached_tokens", "tokens", Group.REQUEST),
    Feature("expected_output_tokens", "tokens", Group.REQUEST),
    Feature("reasoning_budget_tokens", "tokens", Group.REQUEST),
    Feature("reasoning_effort", "rank", Group.REQUEST),
    Feature("running", "requests", Group.STATE),
    Feature("waiting", "requests", Group.STATE),
    Feature("waiting_tokens", "tokens", Group.STATE),
    Feature("oldest_waiting_seconds", "s", Group.STATE),
    Feature("kv_tokens", "tokens", Group.STATE),
    Feature("kv_use", "fraction", Group.STATE),
    Feature("prefill_tokens_in_flight", "tokens", Group.STATE),
    Feature("decode_tokens_in_flight", "tokens", Group.STATE),
    Feature("prefill_duty", "fraction", Group.STATE),
    Feature("batch", "requests", Group.STATE),
    Feature("seconds_since_piece", "s", Group.STATE),
    Feature("recent_running", "requests", Group.STATE),
    Feature("recent_prompt_tokens_per_second", "tokens/s", Group.STATE),
    Feature("waiting_squared_tokens", "tokens²", Group.STATE),
    Feature("step_seconds", "s", Group.STATE),
    Feature("step_prefills", "0 or 1", Group.STATE),
    Feature("sm_clock_mhz", "MHz", Group.POWER),
    Feature("power_watts", "W", Group.POWER),
    Feature("analytic_ttft_seconds", "s", Group.ANALYTIC),
    Feature("analytic_tpot_seconds", "s", Group.ANALYTIC),
    Feature("analytic_request_joules", "J", Group.ANALYTIC),
    Feature("analytic_prefill_joules", "J", Group.ANALYTIC),
    *HARDWARE_FEATURES,
)
"""Columns of a request's row, `request_rows`."""

STEP_FEATURES = (
    Feature("batch", "requests", Group.STATE),
    Feature("kv_tokens", "tokens", Group.STATE),
    Feature("prefill_tokens", "tokens", Group.STATE),
    Feature("prefill_requests", "requests", Group.STATE),
    Feature("prefill_squared_tokens", "tokens²", Group.STATE),
    Feature("sm_clock_mhz", "MHz", Group.POWER),
    Feature("power_watts", "W", Group.POWER),
    Feature("analytic_step_joules", "J", Group.ANALYTIC),
    *HARDWARE_FEATURES,
)
"""Columns of a step's row, `step_rows`."""

FEATURE_COUNT = len(FEATURES)
STEP_FEATURE_COUNT = len(STEP_FEATURES)
HARDWARE_FEATURE_COUNT = len(HARDWARE_FEATURES)


def column_of(name: str, features: Sequence[Feature] = FEATURES) -> int:
    """Index of a feature by its name; raises KeyError for names that do not exist."""
    for index, feature in enumerate(features):
        if feature.name == name:
            return index
    raise KeyError(name)


_STEP_HARDWARE = column_of("accelerator", STEP_FEATURES)
_OUTPUT = column_of("expected_output_tokens")
_ANALYTIC_JOULES = column_of("analytic_request_joules")
_ANALYTIC_PREFILL = column_of("analytic_prefill_joules")


def code_of(text: str | None) -> float:
    """The category of a text, without regard to case; NaN for None and for the empty text."""
    return float(zlib.crc32(text.lower().encode()) % CATEGORIES) if text else NAN


@dataclass(frozen=True, slots=True)
class HardwareDescription:
    """What an endpoint runs on, as numbers and names; None and NaN: unknown. Seconds and joules of the whole engine."""

    accelerator: str | None = None
    model: str | None = None
    role: str | None = None
    """prefill, decode or both."""
    tensor_parallel: float = NAN
    max_num_seqs: float = NAN
    max_num_batched_tokens: float = NAN
    kv_capacity_tokens: float = NAN
    prefill_base_seconds: float = NAN
    prefill_seconds_per_token: float = NAN
    decode_base_seconds: float = NAN
    decode_seconds_per_request: float = NAN
    prefill_joules_per_token: float = NAN
    decode_base_joules: float = NAN
    decode_joules_per_request: float = NAN
    idle_watts: float = NAN

    def row(self) -> FloatColumn:
        """The columns of `HARDWARE_FEATURES`. It changes with the hardware only, so callers keep it per endpoint."""
        return np.array(
            [
                code_of(self.accelerator),
                code_of(self.model),
                code_of(self.role),
                self.tensor_parallel,
                self.max_num_seqs,
                self.max_num_batched_tokens,
                self.kv_capacity_tokens,
                self.prefill_base_seconds,
                self.prefill_seconds_per_token,
                self.decode_base_seconds,
                self.decode_seconds_per_request,
                self.prefill_joules_per_token,
                self.decode_base_joules,
                self.decode_joules_per_request,
                self.idle_watts,
            ],
            dtype=np.float64,
        )


UNKNOWN_HARDWARE = HardwareDescription().row()


def hardware_matrix(rows: Sequence[FloatColumn]) -> Matrix:
    """The rows of several endpoints on top of each other, shape (n, H)."""
    return (
        np.concatenate(rows).reshape(len(rows), HARDWARE_FEATURE_COUNT)
        if rows
        else np.empty((0, len(UNKNOWN_HARDWARE)))
    )


@dataclass(frozen=True, slots=True)
class RequestInputs:
    """What is known of a request before it is sent."""

    prompt_tokens: float
    expected_output_tokens: float
    reasoning_budget_tokens: float = NAN
    """Tokens that the client allows for reasoning; NaN: it does not say."""
    reasoning_effort: float = NAN
    """Rank of the effort that it asks for (`heliotrope.predict.reasoning`); NaN: it does not say."""


@dataclass(frozen=True, slots=True)
class EndpointInputs:
    """Columns of length n, one value per endpoint, projected to now. A plain float holds for all endpoints."""

    hardware: Matrix
    """Shape (n, H), `hardware_matrix`."""
    running: FloatColumn | float
    waiting: FloatColumn | float
    waiting_tokens: FloatColumn | float
    oldest_waiting_seconds: FloatColumn | float
    kv_tokens: FloatColumn | float
    prefill_duty: FloatColumn | float
    cached_tokens: FloatColumn | float
    sm_clock_mhz: FloatColumn | float = NAN
    power_watts: FloatColumn | float = NAN
    analytic_ttft_seconds: FloatColumn | float = NAN
    """The analytic model's own estimates of this request; NaN where no engine profile is known."""
    analytic_tpot_seconds: FloatColumn | float = NAN
    analytic_request_joules: FloatColumn | float = NAN
    """The share that a measurement will attribute to the request."""
    analytic_prefill_joules: FloatColumn | float = NAN
    """What of it is prefill: does not depend on the answer's length."""
    prefill_tokens_in_flight: FloatColumn | float = NAN
    """Prompt tokens of own requests that have not answered yet."""
    decode_tokens_in_flight: FloatColumn | float = NAN
    """Output tokens that own requests are still expected to produce."""
    seconds_since_piece: FloatColumn | float = NAN
    """Since a piece of an answer came from there: tells where in its step the engine is."""
    recent_running: FloatColumn | float = NAN
    """Sequences in the batch, smoothed (`heliotrope.predict.recent_load`)."""
    recent_prompt_tokens_per_second: FloatColumn | float = NAN
    """Prompt tokens that the engine computes for everybody, smoothed likewise."""
    waiting_squared_tokens: FloatColumn | float = NAN
    """Σ n² over the prompts that wait."""
    step_seconds: FloatColumn | float = NAN
    """How long the running step has run (`heliotrope.predict.step_phase`)."""
    step_prefills: FloatColumn | float = NAN
    """1 where it computes prompts, 0 where it decodes."""


def request_rows(request: RequestInputs, endpoints: EndpointInputs) -> Matrix:
    """One row per endpoint of what `FEATURES` declares, shape (n, F)."""
    from heliotrope.predict.rows import write_request_rows

    n = len(endpoints.hardware)

    def column(value: FloatColumn | float) -> FloatColumn:
        # Of one layout, for which the loop is compiled once.
        return np.ascontiguousarray(value, np.float64) if isinstance(value, np.ndarray) else np.full(n, float(value))

    rows = np.empty((n, FEATURE_COUNT))
    write_request_rows(
        float(request.prompt_tokens),
        float(request.expected_output_tokens),
        float(request.reasoning_budget_tokens),
        float(request.reasoning_effort),
        np.ascontiguousarray(endpoints.hardware, dtype=np.float64),
        column(NAN),
        column(endpoints.cached_tokens),
        column(endpoints.running),
        column(endpoints.waiting),
        column(endpoints.waiting_tokens),
        column(endpoints.oldest_waiting_seconds),
        column(endpoints.kv_tokens),
        column(endpoints.prefill_tokens_in_flight),
        column(endpoints.decode_tokens_in_flight),
        column(endpoints.prefill_duty),
        column(endpoints.seconds_since_piece),
        column(endpoints.recent_running),
        column(endpoints.recent_prompt_tokens_per_second),
        column(endpoints.waiting_squared_tokens),
        column(endpoints.step_seconds),
        column(endpoints.step_prefills),
        column(endpoints.sm_clock_mhz),
        column(endpoints.power_watts),
        column(endpoints.analytic_ttft_seconds),
        column(endpoints.analytic_tpot_seconds),
        column(endpoints.analytic_request_joules),
        column(endpoints.analytic_prefill_joules),
        rows,
    )
    return rows


def with_output_tokens(rows: Matrix, output_tokens: FloatColumn | float) -> Matrix:
    """The same rows as if this length had been expected: what a finished answer teaches.

    The analytic decode energy goes with the length. A model of energy given the length then does not learn the error
    of the length's estimate, which has a model of its own.
    """
    result = np.array(rows, dtype=np.float64)
    columns = result.T
    decode = columns[_ANALYTIC_JOULES] - columns[_ANALYTIC_PREFILL]
    columns[_ANALYTIC_JOULES] = columns[_ANALYTIC_PREFILL] + decode * (
        output_tokens / np.maximum(columns[_OUTPUT], 1.0)
    )
    columns[_OUTPUT] = output_tokens
    return result


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One or more steps of engines, columns of length n; a plain float holds for all."""

    hardware: Matrix
    batch: FloatColumn | float
    """Sequences that decode in the step."""
    kv_tokens: FloatColumn | float
    prefill_tokens: FloatColumn | float = 0.0
    prefill_requests: FloatColumn | float = 0.0
    prefill_squared_tokens: FloatColumn | float = 0.0
    """Σ n² over the step's prompts, as `EngineModel.prefill_joules` takes it."""
    sm_clock_mhz: FloatColumn | float = NAN
    power_watts: FloatColumn | float = NAN
    analytic_step_joules: FloatColumn | float = NAN


def step_rows(steps: StepInputs) -> Matrix:
    """One row per step of what `STEP_FEATURES` declares, shape (n, S)."""
    rows = np.empty((len(steps.hardware), STEP_FEATURE_COUNT))
    columns = rows.T
    columns[0] = steps.batch
    columns[1] = steps.kv_tokens
    columns[2] = steps.prefill_tokens
    columns[3] = steps.prefill_requests
    columns[4] = steps.prefill_squared_tokens
    columns[5] = steps.sm_clock_mhz
    columns[6] = steps.power_watts
    columns[7] = steps.analytic_step_joules
    rows[:, _STEP_HARDWARE:] = steps.hardware
    return rows
