"""The endpoints that a request may still go to: one by one, and as columns for code that looks at all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.load import FACTS, Fact, Loads, project
from heliotrope_epp.datalayer.state import EndpointState, Load


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What endpoints are expected to cache of one prompt, in tokens; columns in the order of the endpoints."""

    cached_tokens: FloatColumn
    """In their own memory."""
    deviation_tokens: FloatColumn
    """One standard deviation of these; 0 where nothing has been learned that speaks against the index."""
    offloaded_tokens: FloatColumn
    """In their own memory or a tier below it."""
    offloaded_deviation_tokens: FloatColumn | None = None
    """One standard deviation of these; None: that of the former."""

    @property
    def lower_deviation_tokens(self) -> FloatColumn:
        """`offloaded_deviation_tokens`, whoever said it."""
        lower = self.offloaded_deviation_tokens
        return self.deviation_tokens if lower is None else lower


def joined(beliefs: Sequence[Sequence[float] | Beliefs]) -> Sequence[float] | Beliefs:
    """What several producers believe, at least one: the highest of each endpoint, with its deviation."""
    if len(beliefs) == 1:
        return beliefs[0]
    cached = np.array([_cached(belief) for belief in beliefs], dtype=np.float64)
    best = cached.argmax(axis=0)
    columns = np.arange(cached.shape[1])
    none = np.zeros(cached.shape[1])
    deviations = np.array([b.deviation_tokens if isinstance(b, Beliefs) else none for b in beliefs])
    offloaded = np.array([b.offloaded_tokens if isinstance(b, Beliefs) else _cached(b) for b in beliefs])
    lower = np.array([b.lower_deviation_tokens if isinstance(b, Beliefs) else none for b in beliefs])
    most = offloaded.argmax(axis=0)
    return Beliefs(cached[best, columns], deviations[best, columns], offloaded[most, columns], lower[most, columns])


def _cached(belief: Sequence[float] | Beliefs) -> Sequence[float] | FloatColumn:
    return belief.cached_tokens if isinstance(belief, Beliefs) else belief


@dataclass(frozen=True, slots=True)
class Option:
    """An endpoint that may still be chosen, with its load projected to the moment of the decision."""

    state: EndpointState
    load: Load
    """NaN fields where unknown."""
    cached_tokens: float
    """Prompt tokens that it is believed to cache already; 0 where nothing is known."""

    @property
    def key(self) -> str:
        """The endpoint's unique name."""
        return self.state.endpoint.key


class Options(Sequence[Option]):
    """A sequence of options whose columns are there at once; single ones are made when somebody asks for them."""

    __slots__ = (
        "cached_deviation_tokens",
        "cached_tokens",
        "loads",
        "offloaded_deviation_tokens",
        "offloaded_tokens",
        "states",
    )

    def __init__(
        self,
        states: tuple[EndpointState, ...],
        loads: Loads,
        cached_tokens: FloatColumn,
        cached_deviation_tokens: FloatColumn | None = None,
        offloaded_tokens: FloatColumn | None = None,
        offloaded_deviation_tokens: FloatColumn | None = None,
    ) -> None:
        self.states = states
        self.loads = loads
        """Columns in the order of `states`; so are the next."""
        self.cached_tokens = cached_tokens
        self.cached_deviation_tokens = cached_deviation_tokens
        """One standard deviation of these; None: nobody says."""
        self.offloaded_tokens = offloaded_tokens
        """Cached in the endpoint's memory or a tier below it; None: nobody says."""
        self.offloaded_deviation_tokens = offloaded_deviation_tokens
        """One standard deviation of these; None: nobody says."""

    @classmethod
    def at(
        cls,
        states: Sequence[EndpointState],
        cached_tokens: "Sequence[float] | Beliefs",
        now_s: float,
        stale_after_s: float,
    ) -> "Options":
        """These endpoints with their loads of this moment."""
        facts = _facts(states)
        for row in np.flatnonzero(facts[:, Fact.NEXT_DUE_S] <= now_s).tolist():
            states[row].inflight.expire(now_s)
            facts[row] = states[row].facts
        loads = project(facts, now_s, stale_after_s)
        if isinstance(cached_tokens, Beliefs):
            return cls(
                tuple(states),
                loads,
                cached_tokens.cached_tokens,
                cached_tokens.deviation_tokens,
                cached_tokens.offloaded_tokens,
                cached_tokens.lower_deviation_tokens,
            )
        return cls(tuple(states), loads, np.array(cached_tokens, dtype=np.float64))

    @classmethod
    def of(cls, options: Iterable[Option]) -> "Options":
        """Options that a plugin put together itself."""
        if isinstance(options, Options):
            return options
        chosen = tuple(options)
        rows = [_values(option.load) for option in chosen]
        table = np.ascontiguousarray(np.array(rows, dtype=np.float64).reshape(len(chosen), len(Load.__slots__)).T)
        cached = np.array([option.cached_tokens for option in chosen], dtype=np.float64)
        return cls(tuple(option.state for option in chosen), Loads(table), cached)

    def __len__(self) -> int:
        return len(self.states)

    @overload
    def __getitem__(self, index: int) -> Option: ...

    @overload
    def __getitem__(self, index: slice) -> "Options": ...

    def __getitem__(self, index: int | slice) -> "Option | Options":
        if isinstance(index, slice):
            return self.kept(range(*index.indices(len(self))))
        load = Load(*self.loads.table[:, index].tolist())
        return Option(self.states[index], load, float(self.cached_tokens[index]))

    def kept(self, rows: Sequence[int]) -> "Options":
        """Those at these positions, which are in rising order and different."""
        if len(rows) == len(self):
            return self
        taken = np.array(rows, dtype=np.intp)
        states = self.states
        deviation, offloaded = self.cached_deviation_tokens, self.offloaded_tokens
        lower = self.offloaded_deviation_tokens
        return Options(
            tuple([states[i] for i in rows]),
            self.loads.rows(taken),
            self.cached_tokens[taken],
            None if deviation is None else deviation[taken],
            None if offloaded is None else offloaded[taken],
            None if lower is None else lower[taken],
        )


def _facts(states: Sequence[EndpointState]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rows = [state.facts for state in states]
    return (np.concatenate(rows) if rows else np.empty(0)).reshape(len(rows), FACTS)


def _values(load: Load) -> list[float]:
    return [getattr(load, name) for name in Load.__slots__]
