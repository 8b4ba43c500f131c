"""The engines that an evaluation runs, and what the picker wrongly believes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heliotrope.decide.candidates import Hardware
from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel

MISCALIBRATION = 0.2
"""Largest relative error of a believed coefficient."""
LOW_CLOCK = 0.6
"""Of the nominal SM clock, in the endpoints that run slower."""


@dataclass(frozen=True, slots=True)
class SweptEndpoint:
    """One kind of endpoint."""

    name: str
    engine: EngineModel
    """What runs."""
    believed: EngineModel | None
    """What the picker's variant says; None: the endpoint has no profile."""

    @property
    def hardware(self) -> Hardware:
        """What its variant states."""
        engine = self.engine
        return Hardware(engine.accelerator, engine.tensor_parallel, engine.model, role="both")


def miscalibrated(engine: EngineModel, rng: np.random.Generator, span: float = MISCALIBRATION) -> EngineModel:
    """The same engine with every coefficient of time and energy off by up to ±span, each on its own."""

    def off(value: float) -> float:
        return value * float(rng.uniform(1.0 - span, 1.0 + span))

    p, d, e = engine.prefill, engine.decode, engine.energy
    return replace(
        engine,
        prefill=replace(
            p,
            seconds_per_token_below=off(p.seconds_per_token_below),
            seconds_per_token_above=off(p.seconds_per_token_above),
            base_seconds=off(p.base_seconds),
            seconds_per_request=off(p.seconds_per_request),
            seconds_per_token_squared=off(p.seconds_per_token_squared),
        ),
        decode=replace(
            d,
            alpha_seconds=(off(d.alpha_seconds[0]), off(d.alpha_seconds[1]), off(d.alpha_seconds[2])),
            beta_seconds_per_token=(
                off(d.beta_seconds_per_token[0]),
                off(d.beta_seconds_per_token[1]),
                off(d.beta_seconds_per_token[2]),
            ),
        ),
        energy=replace(
            e,
            prefill_base_joules=off(e.prefill_base_joules),
            prefill_joules_per_token=off(e.prefill_joules_per_token),
            prefill_joules_per_token_squared=off(e.prefill_joules_per_token_squared),
            decode_base_joules=off(e.decode_base_joules),
            decode_joules_per_request=off(e.decode_joules_per_request),
            decode_joules_per_cached_token=off(e.decode_joules_per_cached_token),
        ),
    )


def swept_endpoints(seed: int, *, names: Sequence[str] | None = None) -> tuple[SweptEndpoint, ...]:
    """Three endpoints of every shipped profile: at its nominal clock, at a lower one, and unknown to the picker.

    Args:
        seed: of the miscalibration.
        names: profiles; by default all that ship.
    """
    rng = np.random.default_rng([seed, 1])
    endpoints: list[SweptEndpoint] = []
    for name in names or profiles.available():
        engine = profiles.load(name)
        slow = engine.at_clock(round(engine.clock_mhz * LOW_CLOCK))
        endpoints += (
            SweptEndpoint(name, engine, miscalibrated(engine, rng)),
            SweptEndpoint(f"{name}/slow", slow, miscalibrated(slow, rng)),
            SweptEndpoint(f"{name}/unprofiled", engine, None),
        )
    return tuple(endpoints)
