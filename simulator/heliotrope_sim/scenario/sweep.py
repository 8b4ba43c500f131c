"""The points of a sweep: one scenario for each combination of values."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliotrope.errors import InvalidInputError
from heliotrope_sim.scenario.model import MOST_POINTS, Scenario
from heliotrope_sim.scenario.reading import scenario_of

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Point:
    """One combination."""

    values: Mapping[str, Any]
    """By key, in the order of the sweep."""
    scenario: Scenario

    @property
    def setting(self) -> tuple[tuple[str, Any], ...]:
        """The values but the seed: points that differ only in it are averaged over."""
        return tuple((key, value) for key, value in self.values.items() if key != SEED)


def points(data: Mapping[str, Any], *, quick: bool = False) -> tuple[Point, ...]:
    """Every combination of a scenario's sweep; one point without values where it has none.

    Args:
        data: the scenario as plain data.
        quick: only the first and the last value of each key.

    Raises:
        InvalidInputError: for a key that does not exist or a value that does not fit, and for too many combinations.
    """
    whole = scenario_of(data)
    keys = list(whole.sweep)
    lists = [tuple(data["sweep"][key]) for key in keys]
    if quick:
        lists = [values if len(values) < 2 else (values[0], values[-1]) for values in lists]
    count = 1
    for key, values in zip(keys, lists, strict=True):
        count *= len(values)
        if len({str(value) for value in values}) < len(values):
            raise InvalidInputError(f"sweep.{key}", "has a value twice")
    if count > MOST_POINTS:
        raise InvalidInputError("sweep", f"has {count} combinations, more than {MOST_POINTS}")
    found = []
    for combination in itertools.product(*lists):
        changed = copy.deepcopy({key: value for key, value in data.items() if key != "sweep"})
        for key, value in zip(keys, combination, strict=True):
            _set(changed, key, value)
        try:
            scenario = scenario_of(changed)
        except InvalidInputError as error:
            words = ", ".join(f"{key} = {value}" for key, value in zip(keys, combination, strict=True))
            raise InvalidInputError(error.path, f"{error.problem} (in the sweep's {words})") from error
        found.append(Point(dict(zip(keys, combination, strict=True)), scenario))
    return tuple(found)


def _set(data: Any, key: str, value: Any) -> None:
    """Replace what a key such as `sites.norway.nodes` leads to; entries of lists are found by name."""
    parts = key.split(".")
    at = data
    for i, part in enumerate(parts[:-1]):
        where = ".".join(parts[: i + 1])
        if isinstance(at, list):
            at = _entry(at, part, key, where)
            continue
        if not isinstance(at, dict):
            raise InvalidInputError(f"sweep.{key}", f"{where} leads nowhere")
        if not isinstance(at.get(part), dict | list):
            at[part] = {}
        at = at[part]
    if not isinstance(at, dict):
        raise InvalidInputError(f"sweep.{key}", f"{'.'.join(parts[:-1])} is no mapping")
    at[parts[-1]] = value


def _entry(entries: Sequence[Any], name: str, key: str, where: str) -> Any:
    named = [e for e in entries if isinstance(e, dict) and e.get("name", e.get("region")) == name]
    if len(named) != 1:
        known = ", ".join(str(e.get("name", e.get("region"))) for e in entries if isinstance(e, dict))
        raise InvalidInputError(f"sweep.{key}", f"{where}: no entry is called {name!r}; there are {known}")
    return named[0]
