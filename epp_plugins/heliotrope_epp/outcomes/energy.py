"""What energy counters say: of one request, and of one interval of one endpoint."""

from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.decide.candidates import FloatColumn


@dataclass(frozen=True, slots=True)
class EngineShare:
    """What one engine drew for a request; the fields mean what they mean in `RequestEnergy`."""

    endpoint: str
    region: str | None
    variant: str | None
    millijoules: int
    idle_joules: float
    host_joules: float
    accelerator_seconds: float


@dataclass(frozen=True, slots=True)
class RequestEnergy:
    """The energy that was attributed to one request."""

    start_unix_s: float
    """Start of the first interval that it took part in."""
    end_unix_s: float
    millijoules: int
    """Its exact part of the counters' deltas, all phases and all engines that served it."""
    idle_joules: float
    """Idle and unclaimed energy of the same intervals, allocated by work: reported beside, never added in."""
    host_joules: float
    """The engines' share of their hosts, allocated by work; no accelerator counter shows it."""
    accelerator_seconds: float
    """Time × the share of its engines' accelerators that was its own (SCI's resource share)."""
    coverage: float
    """Share of its time, in [0, 1], for which a counter was there and believable."""
    engines: tuple[EngineShare, ...] = ()
    """Of a request that several engines served, what each drew, the one that answered first: together the totals above.
    Empty: one engine drew all."""

    def by_engine(self, endpoint: str, region: str | None, variant: str | None) -> tuple[EngineShare, ...]:
        """What each engine drew, the one that answered first; `endpoint`, `region` and `variant` are that one's."""
        return self.engines or (
            EngineShare(
                endpoint,
                region,
                variant,
                self.millijoules,
                self.idle_joules,
                self.host_joules,
                self.accelerator_seconds,
            ),
        )


class NoSteps(StrEnum):
    """Why an interval says nothing of the energy of its engine's steps."""

    NOT_SHARED_OUT = "not-shared-out"
    """Counters or tokens could not be believed, or somebody unknown has one of the accelerators too."""
    SHARED = "shared"
    """Several engines share its accelerators: nobody knows whose step drew what."""
    ASLEEP = "asleep"
    ENCODES = "encodes"
    """Its steps are an encoder's, not those of a model of text."""
    IDLE = "idle"
    """No work, or no step that ended."""
    UNCOUNTED = "uncounted"
    """The engine does not say how many steps there were, or started again."""
    MOSTLY_IDLE = "mostly-idle"
    """Too little of it was work: what was idle is not known well enough to be taken off."""
    TOO_FEW = "too-few"
    """So few steps that those cut off by its ends matter."""


@dataclass(frozen=True, slots=True)
class MeteredSteps:
    """The steps of one engine in an interval."""

    count: float
    """How many ended in it, as the engine counts them."""
    joules: float
    """What all of them drew, for whomever: the interval's energy without idle energy."""
    busy_share: float
    """Share of the interval, in [0, 1], with work."""
    features: FloatColumn = field(repr=False, compare=False)
    """The row of the mean step (`heliotrope.predict.features.step_rows`)."""

    @property
    def mean_joules(self) -> float:
        """Of one step."""
        return self.joules / self.count


@dataclass(frozen=True, slots=True)
class MeteredInterval:
    """One endpoint between two believable readings of its counters. The parts add up to `total_millijoules` exactly."""

    endpoint: str
    variant: str | None
    region: str | None
    model: str | None
    start_unix_s: float
    end_unix_s: float
    total_millijoules: int
    requests_millijoules: int
    """Attributed to this picker's requests."""
    others_millijoules: int
    """For tokens that this picker did not send: other pickers' and direct clients'."""
    idle_millijoules: int
    unattributed_millijoules: int
    """Drawn, but over a gap or a reset in which nobody knows by whom."""
    host_joules: float
    """The host's share over the same time, from the engine model; NaN where unknown."""
    steps: MeteredSteps | NoSteps = NoSteps.UNCOUNTED
