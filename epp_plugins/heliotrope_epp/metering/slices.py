"""A slice of one engine's time: what its pages say of it, and what our requests did in it."""

from dataclasses import dataclass, field

from heliotrope_epp.metering.credited import Credited
from heliotrope_epp.metering.steps import Steps
from heliotrope_epp.metering.work import Work

_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Slice:
    """The time between two pages; `end_s` is infinite until the second has come."""

    start_s: float
    end_s: float = _NEVER
    prompt_tokens: float | None = None
    """Computed by the engine; None: unknown, as for the next two."""
    prompts: float | None = None
    generated: float | None = None
    running: float | None = None
    """Mean over its ends."""
    others_running: float = 0.0
    """Share of its ends at which the engine had requests of others."""
    context: float = 0.0
    """Cached tokens per running request at its end; 0 where unknown."""
    others_prompts: float | None = None
    """Of an engine that only encodes; None elsewhere, and where unknown."""
    steps: Steps | None = None
    works: dict[Credited, Work] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    def work(self, followed: Credited) -> Work:
        """A request's work in it, to be added to."""
        own = self.works.get(followed)
        if own is None:
            own = self.works[followed] = Work()
        return own

    def add(self, followed: Credited, work: Work, share: float = 1.0) -> None:
        """Lay a share of a request's work into it."""
        self.work(followed).add(work, share)


@dataclass(slots=True, eq=False)
class Folded:
    """A slice in joules by weights."""

    start_s: float
    end_s: float
    lines: dict[Credited, float] = field(default_factory=dict)
    others: float = 0.0
    busy_s: float = 0.0
    quiet: bool = True
    """False where somebody worked, or a request of ours was on its way and the engine may have begun with it."""
    units: tuple[float, float, float, float, float, float] = (0.0,) * 6
    """Work of all in the order of `WorkWeights`."""
    known: bool = True
    """False where the engine's tokens are unknown: then nobody knows what is ours."""
    asleep: bool = False
    steps: Steps = field(default_factory=Steps)
