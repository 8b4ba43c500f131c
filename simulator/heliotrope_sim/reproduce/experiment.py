"""What every reproduction is: a name, a source, and a function from settings to a report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heliotrope.errors import InvalidInputError
from heliotrope_sim.reproduce.report import Report
from heliotrope_sim.reproduce.workers import Workers


@dataclass(frozen=True, slots=True)
class Settings:
    """How a reproduction runs. Equal seeds give equal rows, whatever the number of processes."""

    seed: int = 7
    quick: bool = False
    """Smaller samples on the same code path: order and sign are judged."""
    figures: tuple[str, ...] = ()
    """What the report is cut to, see `Report.only`; empty: everything."""
    moer: Path | None = None
    """Folder of marginal emission rates that the user has a licence for; read where `Experiment.takes_moer`."""

    def wants(self, part: str) -> bool:
        """Whether what has ids that begin so is asked for. A title, which has spaces, may be in any part."""
        return not self.figures or any(" " in f or f.startswith(part) or part.startswith(f) for f in self.figures)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A study that can be run again."""

    name: str
    source: str
    """The paper, as one cites it in a line."""
    run: Callable[[Settings, Workers], Report]
    parts: tuple[str, ...] = ()
    """What its ids begin with, where a run leaves out what is not asked for."""
    takes_moer: bool = False

    def check(self, settings: Settings) -> None:
        """Refuse what this study cannot be asked for.

        Raises:
            InvalidInputError: for figures that it does not have, and emission rates that it does not read.
        """
        if settings.moer is not None and not self.takes_moer:
            raise InvalidInputError("moer", f"{self.name} does not read marginal emission rates")
        for figure in settings.figures:
            known = " " in figure or any(figure.startswith(p) or p.startswith(figure) for p in self.parts)
            if self.parts and not known:
                raise InvalidInputError("figure", f"{figure!r} is none of {', '.join(self.parts)}, nor a title")
