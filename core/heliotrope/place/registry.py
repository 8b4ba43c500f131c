"""Which schedulers exist. Whoever needs one by name is handed a registry, so that studies can add their own."""

from collections.abc import Mapping
from types import MappingProxyType

from heliotrope.errors import InvalidInputError
from heliotrope.place.assignment import Scheduler
from heliotrope.place.schedulers.cleanest_first import cleanest_first
from heliotrope.place.schedulers.facility import facility
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.place.schedulers.hourly_lp import hourly_lp
from heliotrope.place.schedulers.ilp import ilp
from heliotrope.place.schedulers.iterative import iterative_ilp
from heliotrope.place.schedulers.least_loaded import least_loaded
from heliotrope.place.schedulers.lowest_intensity import lowest_intensity
from heliotrope.place.schedulers.round_robin import round_robin
from heliotrope.place.schedulers.soft_multiplier import soft_multiplier

Registry = Mapping[str, Scheduler]


def shipped() -> Registry:
    """All that Heliotrope has; what a CarbonPolicy can name in `spec.placement.scheduler` is called here as there."""
    return MappingProxyType(
        {
            "RoundRobin": round_robin,
            "LeastLoaded": least_loaded,
            "LowestIntensity": lowest_intensity,
            "SoftMultiplier": soft_multiplier,
            "CleanestFirst": cleanest_first,
            "Greedy": greedy,
            "HourlyLP": hourly_lp,
            "ILP": ilp,
            "IterativeILP": iterative_ilp,
            "Facility": facility,
        }
    )


def scheduler_named(registry: Registry, name: str, path: str = "scheduler") -> Scheduler:
    """The scheduler of this name.

    Raises:
        InvalidInputError: if there is none; `path` is the field that named it.
    """
    if name not in registry:
        raise InvalidInputError(path, f"there is no scheduler {name!r}; there are {', '.join(registry)}")
    return registry[name]
