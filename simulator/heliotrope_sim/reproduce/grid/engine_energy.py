"""Energy of a zone's engines at a load, by the step model of `heliotrope.engine` instead of a fixed J per token."""

from dataclasses import dataclass

import numpy as np

from heliotrope.engine.model import EngineModel
from heliotrope.units import SECONDS_PER_HOUR, joules_from_watts
from heliotrope_sim.reproduce.grid.curtailment import Floats


@dataclass(frozen=True, slots=True)
class Curve:
    """One engine in steady decoding, by its batch from 1 to the most."""

    tokens_per_second: Floats
    joules_per_token: Floats
    idle_watts: float
    host_watts: float

    @property
    def most_tokens_per_second(self) -> float:
        """With a full batch."""
        return float(self.tokens_per_second[-1])


def curve(engine: EngineModel, context_tokens: float) -> Curve:
    """The curve of an engine whose sequences have so many tokens in the cache on average."""
    batch = np.arange(1.0, engine.max_num_seqs + 1.0)
    seconds, joules = (
        engine.decode_seconds(batch, batch * context_tokens),
        engine.decode_joules(batch, batch * context_tokens),
    )
    return Curve(batch / np.asarray(seconds), np.asarray(joules) / batch, engine.idle_watts, engine.host_watts)


def joules_per_token(engine: Curve, tokens_per_second: Floats) -> Floats:
    """At a load of one engine; below one sequence and above the full batch as there."""
    return np.interp(tokens_per_second, engine.tokens_per_second, engine.joules_per_token)


def hourly_joules(engine: Curve, tokens_per_second: Floats, *, standing: bool) -> Floats:
    """What an engine draws in an hour.

    Args:
        engine: its curve.
        tokens_per_second: its load, any shape.
        standing: whether idle time and the host's share count, too; else what tokens are charged with alone.
    """
    watts = tokens_per_second * joules_per_token(engine, tokens_per_second)
    if standing:
        busy = np.minimum(tokens_per_second / engine.tokens_per_second[0], 1.0)
        watts = watts + (1.0 - busy) * engine.idle_watts + engine.host_watts
    return joules_from_watts(watts, np.full_like(watts, SECONDS_PER_HOUR))
