"""What a source of truth publishes, and the interface of such sources."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope_epp.datalayer.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class PoolRef:
    """The InferencePool that the picker serves."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything a source knows at one moment. Immutable: a change is a new value."""

    endpoints: tuple[Endpoint, ...] = ()
    policies: tuple[CarbonPolicy, ...] = ()
    regions: tuple[RegionProfile, ...] = ()
    variants: tuple[WorkloadVariant, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Documents that could not be used, each with its reason; what they replaced stays in force."""
    outdated_policies: Mapping[str, str] = field(default_factory=dict)
    """By `namespace/name` of a CarbonPolicy in `policies`: why its newest version could not be used."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of InferenceObjectives, by name."""
    downgrades_withheld_because: str | None = None
    """Why the pool's namespace may not have requests answered by other models than asked for; None: it may."""


class Source(Protocol):
    """A folder of files or the Kubernetes API. It keeps publishing; while it cannot read, the last value stays."""

    async def run(self, publish: Callable[[Resources], None]) -> None:
        """Publish the first complete state, then each change, until cancelled. Never publishes a partial first state.

        Raises:
            InvalidInputError: if there is nothing to start from (folder missing, no access); the message says what
                to do. Later failures are retried with back-off and reported through `healthy`.
        """
        ...

    @property
    def healthy(self) -> bool:
        """Whether the last read succeeded; False means decisions use what was last known."""
        ...
