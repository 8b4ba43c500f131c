"""What the operator has to know of a kind to watch and remember it, and the table that its objects stand in."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from heliotrope.api.v1alpha1.common import ObjectMeta
from heliotrope_operator.resources import Key, Kind, ResourceType

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster

T = TypeVar("T")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that this program cannot read, its CRD being older or newer."""

    metadata: ObjectMeta
    problem: str
    status: Document
    """As it is; perhaps as unreadable as the rest."""


class Table(Generic[T]):
    """Values by key, and sets of keys by what an index says of each value."""

    def __init__(self, **indexes: Callable[[Key, T], Iterable[Hashable]]) -> None:
        self._values: dict[Key, T] = {}
        self._indexes = indexes
        self._entries: dict[str, dict[Hashable, set[Key]]] = {name: {} for name in indexes}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def get(self, key: Key) -> T | None:
        """The value of a key."""
        return self._values.get(key)

    def values(self) -> list[T]:
        """All values."""
        return list(self._values.values())

    def items(self) -> list[tuple[Key, T]]:
        """All keys with their values."""
        return list(self._values.items())

    def by(self, index: str, of: Hashable) -> frozenset[Key]:
        """Keys whose value has this in an index."""
        return frozenset(self._entries[index].get(of, ()))

    def distinct(self, index: str) -> list[Hashable]:
        """Everything that values have in an index."""
        return list(self._entries[index])

    def put(self, key: Key, value: T | None) -> None:
        """Set a value; None removes it."""
        before = self._values.pop(key, None)
        if before is not None:
            for name, index in self._indexes.items():
                for of in index(key, before):
                    members = self._entries[name][of]
                    members.discard(key)
                    if not members:
                        del self._entries[name][of]
        if value is not None:
            self._values[key] = value
            for name, index in self._indexes.items():
                for of in index(key, value):
                    self._entries[name].setdefault(of, set()).add(key)


Reader = Callable[[Key, Document], T | Unreadable]
Dependents = Callable[["Cluster", Key, T | None, T | None], set[Key]]


def nothing_depends(_cluster: "Cluster", _key: Key, _before: object, _after: object) -> set[Key]:
    """For kinds that others only look up."""
    return set()


@dataclass(frozen=True, slots=True)
class KindSpec(Generic[T]):
    """A kind that is watched and remembered.

    A value that equals the one before is no news: readers keep what decisions need and nothing else, so that the rest
    of an object may change without waking anybody.
    """

    kind: Kind
    resource: ResourceType
    read: Reader[T]
    """From a document to what is remembered of it."""
    indexes: Mapping[str, Callable[[Key, T], Iterable[Hashable]]] = field(default_factory=dict)
    dependents: Dependents[T] = nothing_depends
    """Other keys that a change from one value to another touches; None: the object did not or does not exist."""
    reconciled: bool = True
    """Whether its own key is reconciled; else it only touches others."""

    def table(self) -> Table[T]:
        """An empty table for its objects."""
        return Table(**self.indexes)
