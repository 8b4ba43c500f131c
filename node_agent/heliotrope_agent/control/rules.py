"""Limits on what the control loop does, each with its reason."""

from dataclasses import dataclass

from heliotrope.errors import InvalidInputError

MAX_MHZ = 100_000
"""No clock is higher; a number beyond it is in another unit."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in seconds, clocks in MHz."""

    lower_dwell_s: float = 60.0
    """A GPU is not slowed down or capped further sooner than this after its last change."""
    raise_dwell_s: float = 1.0
    """It is not made faster sooner than this: latency promises wait no longer. Putting back never waits."""
    gpu_changes_per_hour: int = 60
    """Times that a GPU is slowed down or capped; more wait."""
    node_changes_per_minute: int = 256
    """The same for all GPUs of the node together."""
    unknown_owner_s: float = 600.0
    """What is set stays so long while nobody can tell whose a GPU is; then it is put back."""
    foreign_hold_s: float = 600.0
    """A GPU that somebody else sets too is left alone for so long."""
    lost_window_s: float = 600.0
    """A setting that vanishes twice within this time was taken away by somebody; once may be a reset of the driver."""
    readings: int = 3
    """Readings in a row that it takes to believe that a clock does not do what it was told."""
    clock_tolerance_mhz: int = 30
    """Clocks this near are the same; devices round to steps of 7 or 15 MHz."""
    throttled_s: float = 60.0
    """A GPU is called throttled until it was not for so long."""
    retry_first_s: float = 5.0
    """After a failure the group is tried again; each further failure doubles the wait."""
    retry_max_s: float = 300.0
    original_sm_clock_mhz: int | None = None
    """Lock that the node's GPUs have at rest, as the administrator says; None: they are not locked."""
    original_memory_clock_mhz: int | None = None
    """The same of memory clocks."""
    require_watchdog: bool = False
    """Set nothing new while the watchdog is silent; what is set stays."""
    dry_run: bool = False
    """Say what would be set, and set nothing."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InvalidInputError: naming the flag.
        """
        for name in ("lower_dwell_s", "raise_dwell_s", "unknown_owner_s", "foreign_hold_s", "lost_window_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidInputError(f"--{_words(name.removesuffix('_s'))}-seconds", "must be 0 s or more")
        for name in ("gpu_changes_per_hour", "node_changes_per_minute", "readings"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"--{_words(name)}", "must be at least 1")
        for name in ("original_sm_clock_mhz", "original_memory_clock_mhz"):
            mhz = getattr(self, name)
            if mhz is not None and not 1 <= mhz <= MAX_MHZ:
                raise InvalidInputError(f"--{_words(name)}", f"must be between 1 and {MAX_MHZ} MHz")
        if self.raise_dwell_s > self.lower_dwell_s:
            raise InvalidInputError(
                "--raise-dwell-seconds", "must not exceed --lower-dwell-seconds: promises come first"
            )
        if not 0 < self.retry_first_s <= self.retry_max_s:
            raise InvalidInputError("--retry-seconds", f"must be above 0 s and at most {self.retry_max_s:g} s")

    def retry_after_s(self, failures: int) -> float:
        """The wait after so many failures in a row."""
        return float(min(self.retry_first_s * 2.0 ** min(max(failures - 1, 0), 30), self.retry_max_s))


def _words(name: str) -> str:
    return name.replace("_", "-")
