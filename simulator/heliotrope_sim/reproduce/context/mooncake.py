"""The Mooncake conversation trace as sessions: turns are chained where one's prompt goes on from another's."""

from functools import cache

import numpy as np

from heliotrope.units import seconds_from_milliseconds
from heliotrope_sim.data import data_file
from heliotrope_sim.reproduce.context.workload import SIGMA_OUTPUT_ESTIMATE, Workload, qualities
from heliotrope_sim.workload.conversations import ChainedRequest, load_chains, predecessors

FILE = "mooncake-fast25/conversation_chains.csv"


@cache
def _rows() -> tuple[ChainedRequest, ...]:
    return load_chains(data_file(FILE))


def chains() -> tuple[list[int], list[int]]:
    """Of each request, its session and its predecessor in it or -1, as `predecessors` has it."""
    before = predecessors(_rows())
    session: list[int] = []
    opened = 0
    for parent in before:
        session.append(session[parent] if parent >= 0 else opened)
        opened += parent < 0
    return session, before


def mooncake(first_hour: int, seed: int, minutes: float = 60.0) -> Workload:
    """The trace's hour put at an hour of 2022; qualities are drawn as the generator draws them.

    A turn's history is its predecessor's prompt and answer, cut to what its own prompt holds beside one new token.
    """
    rows = _rows()
    session, before = chains()
    limit = minutes * 60.0
    order = sorted(
        (i for i in range(len(rows)) if seconds_from_milliseconds(float(rows[i][0])) < limit),
        key=lambda i: (session[i], i),
    )
    names: dict[int, int] = {}
    index = np.array([names.setdefault(session[i], len(names)) for i in order])
    prompt = np.array([float(rows[i][1]) for i in order])
    carried = np.array([float(rows[before[i]][1] + rows[before[i]][2]) if before[i] >= 0 else 0.0 for i in order])
    history = np.minimum(carried, prompt - 1.0)
    output = np.array([float(max(rows[i][2], 1)) for i in order])
    first = np.searchsorted(index, np.arange(len(names)))
    rng = np.random.default_rng([seed, first_hour, 1])
    return Workload(
        session=index,
        turn=np.arange(len(order)) - first[index] + 1,
        arrival_seconds=np.array([seconds_from_milliseconds(float(rows[i][0])) for i in order]),
        new_tokens=prompt - history,
        history_tokens=history,
        output_tokens=output,
        expected_output_tokens=output * np.exp(SIGMA_OUTPUT_ESTIMATE * rng.standard_normal(len(order))),
        quality=qualities(index, len(names), rng),
        coin=rng.random(len(order)),
        home_region=rng.integers(0, 4, len(names)),
        first_hour=first_hour,
    )
