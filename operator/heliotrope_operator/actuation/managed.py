"""Who owns which field of an object, as its `metadata.managedFields` says.

That list is the API server's own account of every write, so whether a value is ours survives a crash without any record
of ours: whoever changes it takes the ownership away.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Entries = Sequence[Mapping[str, Any]]
Path = tuple[str, ...]

SCALE = "scale"
NOBODY: list[Document] = [{}]
"""How a write says that nobody owns anything; an empty list means the list as it was."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Somebody who set a field."""

    manager: str
    operation: str
    """`Apply` or `Update`."""
    subresource: str = ""

    def document(self) -> Document:
        """For an annotation."""
        named = {"manager": self.manager, "operation": self.operation}
        return named | ({"subresource": self.subresource} if self.subresource else {})

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "Owner":
        """From an annotation, or from an entry of managedFields."""
        return cls(str(found["manager"]), str(found["operation"]), str(found.get("subresource") or ""))


def path_of(field: str) -> Path:
    """From `spec.replicas` to how managedFields name it."""
    return tuple(f"f:{name}" for name in field.split("."))


def scaled_path(entries: Entries) -> Path | None:
    """The field behind `/scale`, as the newest write through it tells; None if nobody ever wrote so."""
    for entry in entries:
        if entry.get("subresource") == SCALE:
            path: list[str] = []
            fields = entry.get("fieldsV1") or {}
            while len(names := [name for name in fields if name != "."]) == 1:
                path += names
                fields = fields[names[0]]
            if path and path[0] == "f:spec":
                return tuple(path)
    return None


def owners(entries: Entries, path: Path) -> tuple[Owner, ...]:
    """Everybody who owns a field with the value that it has."""
    return tuple(Owner.read(entry) for entry in entries if _owns(entry, path))


def without(entries: Entries, manager: str, path: Path, heirs: Iterable[Owner]) -> list[Document]:
    """The entries without a manager's; its field goes to heirs that are still there."""
    kept = [deepcopy(dict(entry)) for entry in entries if entry.get("manager") != manager]
    wanted = set(heirs)
    for entry in kept:
        if Owner.read(entry) in wanted:
            fields = entry.setdefault("fieldsV1", {})
            for name in path:
                fields = fields.setdefault(name, {})
    return kept or NOBODY


def _owns(entry: Mapping[str, Any], path: Path) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    for name in path:
        if name not in fields:
            return False
        fields = fields[name]
    return True
