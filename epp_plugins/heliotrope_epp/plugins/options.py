"""The endpoints that a request may still go to: one by one, and as columns for code that looks at all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.load import FACTS, Fact, Loads, project
from heliotrope_epp.datalayer.state import EndpointState, Load


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

    __slots__ = ("cached_tokens", "loads", "states")

    def __init__(self, states: tuple[EndpointState, ...], loads: Loads, cached_tokens: FloatColumn) -> None:
        self.states = states
        self.loads = loads
        """Columns in the order of `states`; so are the next."""
        self.cached_tokens = cached_tokens

    @classmethod
    def at(
        cls, states: Sequence[EndpointState], cached_tokens: Sequence[float], now_s: float, stale_after_s: float
    ) -> "Options":
        """These endpoints with their loads of this moment."""
        facts = _facts(states)
        due = np.flatnonzero(facts[:, Fact.NEXT_DUE_S] <= now_s)
        for row in due:
            states[row].inflight.expire(now_s)
            facts[row] = states[row].facts
        return cls(tuple(states), project(facts, now_s, stale_after_s), np.array(cached_tokens, dtype=np.float64))

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
        return Options(tuple([states[i] for i in rows]), self.loads.rows(taken), self.cached_tokens[taken])


def _facts(states: Sequence[EndpointState]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rows = [state.facts for state in states]
    return (np.concatenate(rows) if rows else np.empty(0)).reshape(len(rows), FACTS)


def _values(load: Load) -> list[float]:
    return [getattr(load, name) for name in Load.__slots__]
