"""What every reproduction is: a name, a source, and a function from settings to a report."""

from collections.abc import Callable
from dataclasses import dataclass

from heliotrope_sim.reproduce.report import Report
from heliotrope_sim.reproduce.workers import Workers


@dataclass(frozen=True, slots=True)
class Settings:
    """How a reproduction runs. Equal seeds give equal rows, whatever the number of processes."""

    seed: int = 7
    quick: bool = False
    """Smaller samples on the same code path: order and sign are judged."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A study that can be run again."""

    name: str
    source: str
    """The paper, as one cites it in a line."""
    run: Callable[[Settings, Workers], Report]
