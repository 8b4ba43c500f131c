"""The error that remains to whoever knows the whole state of an engine, but not the future.

At some arrivals the engine is copied and run on several times with other arrivals, and with other lengths of the
answers that are being written: nobody can foresee either. The same request in the same state then gets other latencies
and joules; the spread of these twins is an error that no predictor avoids, however it learns. Step phase, queue and
batch are equal in all twins, so what a picker does not see of them comes on top.
"""

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heliotrope_sim.engine import Engine
from heliotrope_sim.engine import Sequence as EngineSequence
from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.evaluation.lengths import Lengths, engine_request
from heliotrope_sim.evaluation.scores import Floats, Score, mean_score

TWINS = 8
TRIES = 50
"""Draws of a length that is longer than what has been written."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one future made of the request."""

    ttft_seconds: float
    tpot_seconds: float
    joules: float


def twin(
    engine: Engine,
    sequence: EngineSequence,
    now_ns: int,
    step_end_ns: int | None,
    arrivals: Iterator[Lengths],
    rate_per_second: float,
    rng: np.random.Generator,
) -> Outcome:
    """Run a copy on until the request ends, with other arrivals.

    Args:
        engine: is copied, with the request submitted to it.
        sequence: of the request.
        now_ns: its arrival.
        step_end_ns: of the step that runs then; None: none does.
        arrivals: lengths of those that come after it.
        rate_per_second: of the Poisson process.
        rng: of their gaps.
    """
    engine, target = copy.deepcopy((engine, sequence))
    for other in engine.in_flight:
        if other is not target:
            other.request = replace(other.request, output_tokens=_other_length(other, arrivals))
    block_size = engine.model.block_size
    next_ns = now_ns + nanoseconds(float(rng.exponential(1.0 / rate_per_second)))
    end_ns, number = step_end_ns if step_end_ns is not None else now_ns, 0
    while target.finished_ns is None:
        while next_ns <= end_ns:
            engine.submit(engine_request(f"twin-{number}", next(arrivals), block_size), next_ns)
            next_ns += nanoseconds(float(rng.exponential(1.0 / rate_per_second)))
            number += 1
        step = engine.step(end_ns)
        assert step is not None, "the request is still in flight"
        end_ns = step.end_ns
    assert target.first_token_ns is not None
    tokens = target.request.output_tokens
    decode_s = seconds(target.finished_ns - target.first_token_ns)
    return Outcome(
        ttft_seconds=seconds(target.first_token_ns - now_ns),
        tpot_seconds=decode_s / (tokens - 1) if tokens > 1 else float("nan"),
        joules=target.joules,
    )


def _other_length(sequence: EngineSequence, arrivals: Iterator[Lengths]) -> int:
    """Of an answer that is at least as long already, as long as one of those that come; its own if none is longer."""
    lengths = (each.output_tokens for each in itertools.islice(arrivals, TRIES))
    return next((tokens for tokens in lengths if tokens > sequence.generated), sequence.request.output_tokens)


def floors(twins: Sequence[tuple[Outcome, ...]], runs: Sequence[int], seed: int) -> tuple[Score, Score, Score]:
    """Smallest mean relative error of TTFT, TPOT and joules that one answer per set of twins can have."""
    groups = np.array(runs, dtype=np.int64)
    columns = (
        [[o.ttft_seconds for o in each] for each in twins],
        [[o.tpot_seconds for o in each] for each in twins],
        [[o.joules for o in each] for each in twins],
    )
    ttft, tpot, joules = (
        _floor(np.array(column, dtype=np.float64).reshape(len(twins), -1), groups, seed) for column in columns
    )
    return ttft, tpot, joules


def _floor(values: Floats, groups: np.ndarray[tuple[int], np.dtype[np.int64]], seed: int) -> Score:
    known = np.isfinite(values).all(axis=1)
    best = np.array([min(float(np.abs(answer / row - 1.0).mean()) for answer in row) for row in values[known]])
    return mean_score(best, groups[known], seed)
