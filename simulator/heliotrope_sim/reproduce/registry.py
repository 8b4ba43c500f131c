"""The studies that `heliotrope reproduce` knows."""

from collections.abc import Mapping

from heliotrope.errors import InvalidInputError
from heliotrope_sim.reproduce.context.experiment import CONTEXT_IS_NOT_FREE
from heliotrope_sim.reproduce.experiment import Experiment
from heliotrope_sim.reproduce.grid.experiment import CLEANEST_GRID
from heliotrope_sim.reproduce.roadmap.experiment import SICP
from heliotrope_sim.reproduce.tension.experiment import CARBON_SLO

EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each for each in (CONTEXT_IS_NOT_FREE, CLEANEST_GRID, CARBON_SLO, SICP)
}


def find(name: str) -> Experiment:
    """An experiment by its name.

    Raises:
        InvalidInputError: if there is none; the message lists those there are.
    """
    if name not in EXPERIMENTS:
        raise InvalidInputError("experiment", f"{name[:60]!r} is unknown; known: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
