"""How a part of the operator is put in: what it gets, and what it adds.

A part is a package with a function `part(context) -> Part`. It never reaches for another part: what parts have to tell
each other stands in tables that the context carries.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.reconciler import Controller
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import Key, Kind, ResourceType
from heliotrope_operator.settings import OperatorSettings
from heliotrope_operator.tables import Tables
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes


@dataclass(frozen=True, slots=True)
class Context:
    """What every part may use."""

    settings: OperatorSettings
    kube: Kube
    """For reads."""
    writes: Writes
    """For changes."""
    writer: Writer
    """For statuses."""
    cluster: Cluster
    recorder: Recorder
    metrics: Metrics
    unix_clock: Callable[[], float]
    enqueue: Callable[[Iterable[Key]], None]
    """Has keys reconciled."""
    tables: Tables = field(default_factory=Tables)
    """What parts tell each other."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a part adds."""

    controllers: Mapping[Kind, Controller] = field(default_factory=dict)
    """By the kinds that it reconciles; a kind belongs to one part."""
    seeds: tuple[Key, ...] = ()
    """Reconciled each time this replica begins to lead, beside all known objects: work without an object of its own,
    which from then on asks to be looked at again by what it returns."""
    helpers: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    """Run until the operator stops, whether it leads or not; one that ends ends the operator."""
    on_target: Callable[[ResourceType, str | None, Mapping[str, Any]], Iterable[Key]] | None = None
    """Takes each event of a kind that variants scale (`resources.SCALE_TARGETS`): kind, type (None when listed) and
    object. What it returns is reconciled."""
    close: Callable[[], Awaitable[None]] | None = None
    """Called once when everything else has stopped, still leading if it did."""
