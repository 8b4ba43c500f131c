"""What the demo plays: regions, engines, promises, the stretch of the trace and the day of carbon."""

from collections.abc import Mapping
from dataclasses import dataclass

from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Region:
    """A place with engines on one grid."""

    name: str
    zone: str
    description: str
    pue: float = 1.2
    engines: int = 3

    @property
    def series_file(self) -> str:
        """The zone's carbon series, under `data/`."""
        return f"carbon/{self.zone}.csv"


REGIONS = (
    Region("norway", "NO", "hydro: clean all day"),
    Region("spain", "ES", "mixed: wind, nuclear, gas"),
    Region("california", "US-CAL-CISO", "solar by day, gas by night"),
)


@dataclass(frozen=True, slots=True)
class Talks:
    """How conversations of the Mooncake trace become the demo's."""

    share: float = 0.5
    """Of all requests, how many are turns of conversations; 0: none."""
    trace: str = "mooncake-fast25/conversation_chains.csv"
    least_turns: int = 3
    """In the trace; shorter ones are left out."""
    prompt_scale: float = 0.25
    """The demo's tokens per token of the trace, in prompts."""
    answer_scale: float = 0.25
    """The same in answers."""
    longest_prompt_tokens: int = 4_000
    """After scaling; where a prompt would get longer, the conversation ends."""
    pause_scale: float = 0.01
    """Seconds between an answer and the next turn, per second between two turns in the trace."""
    longest_pause_seconds: float = 3.0
    begin_share: float = 0.75
    """Of the time of arrivals, the part in which conversations begin."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All arms of a demo run share one scenario."""

    regions: tuple[Region, ...] = REGIONS
    profile: str = "llama-3.1-70b-h100-tp4"
    max_num_seqs: int = 16
    """Batch limit of each engine; small, so that two cores can emulate nine loaded engines."""
    load: float = 0.55
    """Offered requests over what the fleet can complete."""
    arrival_seconds: float = 20.0
    ramp_seconds: float = 6.0
    """Until then the fleet fills up; mean batches are taken between here and the last arrival."""
    drain_seconds: float = 12.0
    """Time after the last arrival in which everything must have ended; energy counts until then in every arm."""
    ttft_slo_seconds: float = 1.0
    tpot_slo_seconds: float = 0.1
    series_start: str = "2022-05-19T00:00:00Z"
    series_hours: float = 24.0
    stream_share: float = 0.5
    trace: str = "azure-llm-2023/conv_first_20min.csv"
    trace_skip: int = 3_200
    talks: Talks = Talks()
    seed: int = 7
    model: str = "meta-llama/Llama-3.1-70B-Instruct"
    constant_intensities: Mapping[str, float] | None = None
    """g/kWh by region, instead of the recorded series."""

    def __post_init__(self) -> None:
        """Check what would give a meaningless run.

        Raises:
            InvalidInputError: naming the setting.
        """
        if not 0.0 < self.load < 1.5:
            raise InvalidInputError("load", f"{self.load} is not between 0 and 1.5")
        if self.arrival_seconds <= 0 or self.drain_seconds < 0:
            raise InvalidInputError("arrival_seconds", "must be positive")
        if not 0.0 <= self.stream_share <= 1.0:
            raise InvalidInputError("stream_share", f"{self.stream_share} is not between 0 and 1")
        if not 0.0 <= self.talks.share < 1.0:
            raise InvalidInputError("talks.share", f"{self.talks.share} is not between 0 and 1")

    @property
    def horizon_seconds(self) -> float:
        """Length of an arm: energy and grams are counted from the start to here, whoever finishes earlier."""
        return self.arrival_seconds + self.drain_seconds

    @property
    def series_start_unix_s(self) -> float:
        """The recorded time shown at the start of an arm."""
        return unix_seconds(self.series_start)

    @property
    def speed(self) -> int:
        """How many recorded seconds pass in one second of an arm."""
        return max(1, round(self.series_hours * SECONDS_PER_HOUR / self.horizon_seconds))
