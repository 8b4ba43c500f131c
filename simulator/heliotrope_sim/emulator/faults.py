"""Faults on demand, so that what stands in front of the engine can be tested against them."""

import random
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heliotrope.errors import InvalidInputError


class FaultKind(StrEnum):
    """What goes wrong."""

    ERROR = "error"
    """The request is answered with `status` at once."""
    CUT = "cut"
    """The connection is closed after `after_tokens` tokens."""
    SLOW = "slow"
    """The request reaches the engine `delay_seconds` late (wall clock)."""
    HANG = "hang"
    """The request is never answered."""
    UNHEALTHY = "unhealthy"
    """/health answers 503; requests are served."""


class Fault(BaseModel):
    """One fault, in force until it is used up or cleared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: FaultKind
    probability: float = Field(default=1.0, gt=0, le=1)
    """Of each request to be hit."""
    count: int | None = Field(default=None, ge=1)
    """Requests to hit before it ends; None: no end."""
    status: int = Field(default=500, ge=400, le=599)
    after_tokens: int = Field(default=1, ge=1)
    delay_seconds: float = Field(default=1.0, ge=0, le=3600)

    @model_validator(mode="after")
    def _health_is_not_a_request(self) -> Self:
        if self.kind is FaultKind.UNHEALTHY and (self.count is not None or self.probability != 1):
            raise ValueError("unhealthy lasts until it is cleared: leave out count and probability")
        return self


class FaultInjector:
    """The faults in force at one engine."""

    LIMIT = 64

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: list[tuple[Fault, int | None]] = []

    @property
    def healthy(self) -> bool:
        """Whether /health is to say so."""
        return all(fault.kind is not FaultKind.UNHEALTHY for fault, _ in self._faults)

    def add(self, fault: Fault) -> None:
        """Put a fault in force.

        Raises:
            InvalidInputError: if there are too many already.
        """
        if len(self._faults) >= self.LIMIT:
            raise InvalidInputError("faults", f"{self.LIMIT} are in force already; clear them first")
        self._faults.append((fault, fault.count))

    def clear(self) -> None:
        """End all faults."""
        self._faults.clear()

    def listing(self) -> list[Fault]:
        """The faults in force, with what is left of their counts."""
        return [fault.model_copy(update={"count": left}) for fault, left in self._faults]

    def strike(self) -> Fault | None:
        """The fault that hits the request that comes now, if any."""
        for i, (fault, left) in enumerate(self._faults):
            if fault.kind is FaultKind.UNHEALTHY or self._random.random() >= fault.probability:
                continue
            if left == 1:
                del self._faults[i]
            elif left is not None:
                self._faults[i] = (fault, left - 1)
            return fault
        return None
