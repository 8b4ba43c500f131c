"""The annotation that says what a field was before Heliotrope took it: enough to give it back without the operator."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from heliotrope.errors import InvalidInputError
from heliotrope_operator.actuation.managed import Owner


@dataclass(frozen=True, slots=True)
class Original:
    """What to put back, and where it came from."""

    field: str
    """Path of the field, for instance `spec.replicas`."""
    value: int | None
    """None: it was not set."""
    variant: str
    """Name of the WorkloadVariant for which it was taken."""
    operator: str
    """Namespace of the operator that took it; another operator leaves it alone."""
    taken_unix_s: float
    owners: tuple[Owner, ...] = ()
    """Who had set it; they own it again afterwards."""

    def text(self) -> str:
        """For the annotation."""
        return json.dumps(
            {
                "field": self.field,
                "value": self.value,
                "variant": self.variant,
                "operator": self.operator,
                "time": datetime.fromtimestamp(int(self.taken_unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "owners": [owner.document() for owner in self.owners],
            },
            separators=(",", ":"),
        )


def read(text: str) -> Original:
    """What an annotation says.

    Raises:
        InvalidInputError: if somebody has changed it so that it says nothing.
    """
    try:
        found: Mapping[str, Any] = json.loads(text)
        value = found["value"]
        return Original(
            field=str(found["field"]),
            value=None if value is None else int(value),
            variant=str(found["variant"]),
            operator=str(found["operator"]),
            taken_unix_s=datetime.fromisoformat(found["time"]).timestamp(),
            owners=tuple(Owner.read(each) for each in found.get("owners", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError("heliotrope.io/original", f"cannot be read: {text[:200]!r}") from error
