"""The analytic step model of one inference engine (paper carbon-slo-tension, §III-B).

An engine is one serving process with all the accelerators of its tensor-parallel group. Times are seconds, energies
joules of all its accelerators together, without host and without PUE. Inputs may be floats or numpy arrays.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError

Quantity = TypeVar("Quantity", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class PrefillTime:
    """t_pre = t_tok(N) + b0 + b1·B + b2·Σn², with t_tok piecewise linear: flat slope below the knee, steep above."""

    knee_tokens: float
    seconds_per_token_below: float
    seconds_per_token_above: float
    base_seconds: float
    seconds_per_request: float
    seconds_per_token_squared: float


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """t_dec = a0 + a1·B + a2·B², a_j = alpha_j + beta_j·(K/B); tuples are (j=0, j=1, j=2)."""

    alpha_seconds: tuple[float, float, float]
    beta_seconds_per_token: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """E_pre = e0 + e_p·N + e_a·Σn² and E_dec = e0 + e_d·B + e_k·K, in joules of the whole engine."""

    prefill_base_joules: float
    prefill_joules_per_token: float
    prefill_joules_per_token_squared: float
    decode_base_joules: float
    decode_joules_per_request: float
    decode_joules_per_cached_token: float


@dataclass(frozen=True, slots=True)
class ClockResponse:
    """How time and power follow the SM clock f: a labelled model, not a measurement (docs/engine-models.md).

    With x = f / nominal: prefill time × x^-prefill_exponent; decode time × x^-decode_exponent (decode is bound by
    memory, so nearly flat), and below the knee × knee / f on top, where the SMs no longer keep the memory busy; power
    above idle × x^power_exponent of the phase.
    """

    min_mhz: int
    max_mhz: int
    step_mhz: int
    prefill_exponent: float
    decode_exponent: float
    decode_knee_mhz: int
    prefill_power_exponent: float
    decode_power_exponent: float

    def prefill_time(self, mhz: float, reference_mhz: float) -> float:
        """Factor on prefill time when the clock goes from the reference to `mhz`."""
        return float((mhz / reference_mhz) ** -self.prefill_exponent)

    def decode_time(self, mhz: float, reference_mhz: float) -> float:
        """Factor on decode time when the clock goes from the reference to `mhz`."""
        starved = max(1.0, self.decode_knee_mhz / mhz) / max(1.0, self.decode_knee_mhz / reference_mhz)
        return float((mhz / reference_mhz) ** -self.decode_exponent * starved)


@dataclass(frozen=True, slots=True)
class ModelError:
    """Mean absolute relative error of the fit against its held-out points (0.05 = 5 %), used as uncertainty."""

    prefill_seconds: float
    decode_seconds: float
    step_joules: float


@dataclass(frozen=True, slots=True)
class EngineModel:
    """One model on one accelerator configuration: step times, step energy, standing power and memory."""

    name: str
    model: str
    accelerator: str
    tensor_parallel: int
    prefill: PrefillTime
    decode: DecodeTime
    energy: StepEnergy
    clock: ClockResponse
    error: ModelError
    idle_watts: float
    """Power of all accelerators with the model loaded and nothing in flight."""
    sleep_watts: float
    """Power of all accelerators while the engine sleeps (weights offloaded, CUDA context alive)."""
    host_watts: float
    """This engine's share of its node's host power; drawn always."""
    kv_bytes_per_token: int
    kv_capacity_tokens: int
    """Tokens whose KV fits into what the weights leave of the memory."""
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    clock_mhz: int
    """The SM clock that the coefficients hold for."""
    unloaded_watts: float | None = None
    """Power of all accelerators without any process (no CUDA context), the node up; None: unknown."""

    def prefill_seconds(
        self, tokens: Quantity, requests: Quantity | float = 1.0, sum_squares: Quantity | None = None
    ) -> Quantity:
        """Time of one prefill step.

        Args:
            tokens: N, uncached prompt tokens in the step.
            requests: B, how many prompts they belong to.
            sum_squares: Σ n_i² over the prompts; by default one prompt, N². For a chunk that extends a prompt from p
                to q tokens (chunked prefill, cached prefix) it is q² - p².

        Returns:
            Seconds, of the shape of `tokens`; 0 where there are no tokens.
        """
        p = self.prefill
        squares = tokens * tokens if sum_squares is None else sum_squares
        below = np.minimum(tokens, p.knee_tokens)
        above = tokens - below
        seconds = (
            p.seconds_per_token_below * below
            + p.seconds_per_token_above * above
            + p.base_seconds
            + p.seconds_per_request * requests
            + p.seconds_per_token_squared * squares
        )
        return np.where(tokens <= 0, 0.0, seconds)[()]  # type: ignore[return-value]

    def decode_seconds(self, batch: Quantity, kv_tokens: Quantity) -> Quantity:
        """Time of one decode step of B sequences that hold K cached tokens together; 0 where B is 0."""
        a, b = self.decode.alpha_seconds, self.decode.beta_seconds_per_token
        per_request = kv_tokens / np.where(batch > 0, batch, 1.0)
        seconds = (
            a[0]
            + b[0] * per_request
            + (a[1] + b[1] * per_request) * batch
            + (a[2] + b[2] * per_request) * batch * batch
        )
        return np.where(batch <= 0, 0.0, seconds)[()]  # type: ignore[return-value]

    def prefill_joules(self, tokens: Quantity, sum_squares: Quantity | None = None) -> Quantity:
        """Energy of one prefill step; arguments as in `prefill_seconds`."""
        e = self.energy
        squares = tokens * tokens if sum_squares is None else sum_squares
        joules = (
            e.prefill_base_joules + e.prefill_joules_per_token * tokens + e.prefill_joules_per_token_squared * squares
        )
        return np.where(tokens <= 0, 0.0, joules)[()]  # type: ignore[return-value]

    def decode_joules(self, batch: Quantity, kv_tokens: Quantity) -> Quantity:
        """Energy of one decode step; arguments as in `decode_seconds`."""
        e = self.energy
        joules = (
            e.decode_base_joules + e.decode_joules_per_request * batch + e.decode_joules_per_cached_token * kv_tokens
        )
        return np.where(batch <= 0, 0.0, joules)[()]  # type: ignore[return-value]

    def at_clock(self, mhz: int) -> "EngineModel":
        """The same engine at another SM clock, by its `ClockResponse`; clamped to the device's range.

        Step energy follows power × time: the part above idle scales with power and time, the idle part with idle power
        and time. Idle power falls towards `unloaded_watts` in proportion to the clock, where that is known.
        """
        mhz = min(max(mhz, self.clock.min_mhz), self.clock.max_mhz)
        if mhz == self.clock_mhz:
            return self
        x = mhz / self.clock_mhz
        prefill_scale = self.clock.prefill_time(mhz, self.clock_mhz)
        decode_scale = self.clock.decode_time(mhz, self.clock_mhz)
        idle_watts = self._standing_watts(self.idle_watts, x)
        return replace(
            self,
            clock_mhz=mhz,
            prefill=_scaled_prefill(self.prefill, prefill_scale),
            decode=_scaled_decode(self.decode, decode_scale),
            energy=self._scaled_energy(x, prefill_scale, decode_scale, idle_watts),
            idle_watts=idle_watts,
            sleep_watts=self._standing_watts(self.sleep_watts, x),
        )

    def _standing_watts(self, watts: float, x: float) -> float:
        if self.unloaded_watts is None:
            return watts
        return self.unloaded_watts + (watts - self.unloaded_watts) * x

    def _scaled_energy(self, x: float, prefill_scale: float, decode_scale: float, idle_watts: float) -> StepEnergy:
        p, d, e = self.prefill, self.decode, self.energy

        def scaled(joules: float, seconds: float, time_scale: float, power_scale: float) -> float:
            above_idle = (joules - self.idle_watts * seconds) * power_scale
            return (above_idle + idle_watts * seconds) * time_scale

        def prefill(joules: float, seconds: float) -> float:
            return scaled(joules, seconds, prefill_scale, x**self.clock.prefill_power_exponent)

        def decode(joules: float, seconds: float) -> float:
            return scaled(joules, seconds, decode_scale, x**self.clock.decode_power_exponent)

        # Energy has no knee. A line from the base with the slope above it is never below the time, so that no clock
        # makes a step draw less than idle; it overstates the idle part by what the flat slope saves.
        return StepEnergy(
            prefill_base_joules=prefill(e.prefill_base_joules, p.base_seconds + p.seconds_per_request),
            prefill_joules_per_token=prefill(e.prefill_joules_per_token, p.seconds_per_token_above),
            prefill_joules_per_token_squared=prefill(e.prefill_joules_per_token_squared, p.seconds_per_token_squared),
            decode_base_joules=decode(e.decode_base_joules, d.alpha_seconds[0]),
            decode_joules_per_request=decode(e.decode_joules_per_request, d.alpha_seconds[1]),
            decode_joules_per_cached_token=decode(e.decode_joules_per_cached_token, d.beta_seconds_per_token[1]),
        )

    def to_mapping(self) -> dict[str, Any]:
        """The model as plain numbers, strings, lists and dictionaries: the shape of the profile files."""
        data = asdict(self)
        decode = data["decode"]
        data["decode"] = {name: list(values) for name, values in decode.items()}
        return data

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "EngineModel":
        """Build a model from the shape that `to_mapping` writes (the profile files).

        Raises:
            InvalidInputError: if a coefficient is missing, unknown, not a number, or below 0; names the field.
        """
        return _from_mapping(cls, data, "")


_Record = TypeVar("_Record")


def _from_mapping(record: type[_Record], data: Any, path: str) -> _Record:
    """A frozen record of numbers, strings, number tuples and records like it, every field checked."""
    if not isinstance(data, Mapping):
        raise InvalidInputError(path, f"must be a mapping with the fields of {record.__name__}")
    declared = {field.name: field for field in fields(record)}  # type: ignore[arg-type]
    prefix = f"{path}." if path else ""
    for name in data:
        if name not in declared:
            raise InvalidInputError(f"{prefix}{name}", f"is no field of {record.__name__}; has {', '.join(declared)}")
    hints = get_type_hints(record)
    values: dict[str, Any] = {}
    for name, field in declared.items():
        if name in data:
            values[name] = _value(hints[name], data[name], f"{prefix}{name}")
        elif field.default is not None:
            raise InvalidInputError(f"{prefix}{name}", "is missing; a profile states every coefficient")
    return record(**values)


def _value(hint: Any, value: Any, path: str) -> Any:
    if hint is str:
        if not isinstance(value, str):
            raise InvalidInputError(path, f"must be a string, not {value!r}")
        return value
    if hint is int:
        return int(_number(value, path, whole=True))
    if hint is float:
        return _number(value, path)
    if hint == float | None:
        return None if value is None else _number(value, path)
    if hint == tuple[float, float, float]:
        if not isinstance(value, (list, tuple)) or len(value) != 3:
            raise InvalidInputError(path, f"must be a list of three numbers (j = 0, 1, 2), not {value!r}")
        return tuple(_number(item, f"{path}[{index}]") for index, item in enumerate(value))
    return _from_mapping(hint, value, path)


def _number(value: Any, path: str, *, whole: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise InvalidInputError(path, f"must be a finite number of 0 or more, not {value!r}")
    if whole and value != int(value):
        raise InvalidInputError(path, f"must be a whole number, not {value!r}")
    return float(value)


def _scaled_prefill(p: PrefillTime, scale: float) -> PrefillTime:
    return PrefillTime(
        knee_tokens=p.knee_tokens,
        seconds_per_token_below=p.seconds_per_token_below * scale,
        seconds_per_token_above=p.seconds_per_token_above * scale,
        base_seconds=p.base_seconds * scale,
        seconds_per_request=p.seconds_per_request * scale,
        seconds_per_token_squared=p.seconds_per_token_squared * scale,
    )


def _scaled_decode(d: DecodeTime, scale: float) -> DecodeTime:
    a, b = d.alpha_seconds, d.beta_seconds_per_token
    return DecodeTime(
        alpha_seconds=(a[0] * scale, a[1] * scale, a[2] * scale),
        beta_seconds_per_token=(b[0] * scale, b[1] * scale, b[2] * scale),
    )
