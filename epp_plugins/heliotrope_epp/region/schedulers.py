"""Schedulers by the name that a CarbonPolicy gives them."""

from collections.abc import Mapping

from heliotrope.api.v1alpha1.objective import Scheduler as Name
from heliotrope.place.assignment import Scheduler

INLINE = frozenset({Name.GREEDY.value})
"""Fast enough for the loop; the others solve programs and live in a process of their own."""


def schedulers() -> Mapping[str, Scheduler]:
    """Those that a policy can name; the solvers' libraries are loaded here."""
    from heliotrope.place.registry import shipped

    known = shipped()
    return {name.value: known[name.value] for name in Name}
