"""Workloads of a scenario."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from heliotrope_sim.scenario.base import Count, Name, NonNegative, Positive, Slo, Strict


class RequestClass(Strict):
    """Requests of a kind. A policy's class of the same name gives them its promise."""

    name: Name
    share: NonNegative = 1.0
    """Of the drawn requests, relative to the other classes; in a trace the column `class` says it."""
    slo: Slo | None = None
    """What is judged; absent: the scenario's."""
    allowed_regions: tuple[Name, ...] | None = None
    """Data residency; absent: everywhere."""


class Dataset(StrEnum):
    """Lengths with the means of papers' data sets; variations are assumed (`heliotrope_sim.fleet.lengths`)."""

    CNN_DAILYMAIL = "cnn-dailymail"
    OPEN_ORCA = "open-orca"
    LONG_PROMPTS = "long-prompts"
    MIXED_PROMPTS = "mixed-prompts"


class Lengths(Strict):
    """Log-normal lengths of prompts and answers: a data set's, or means of your own."""

    dataset: Dataset | None = None
    mean_prompt_tokens: Annotated[float, Field(ge=1.0)] | None = None
    mean_output_tokens: Annotated[float, Field(ge=1.0)] | None = None
    prompt_variation: NonNegative = 0.5
    """Standard deviation by mean."""
    output_variation: NonNegative = 0.4
    most_prompt_tokens: Count = 4096
    most_output_tokens: Count = 4096

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        means = (self.mean_prompt_tokens, self.mean_output_tokens)
        if self.dataset is not None and (any(mean is not None for mean in means) or len(self.model_fields_set) > 1):
            raise ValueError("dataset says everything; leave the other keys out")
        if self.dataset is None and any(mean is None for mean in means):
            raise ValueError("set dataset, or both mean_prompt_tokens and mean_output_tokens")
        return self


class Expected(StrEnum):
    """What schedulers believe of the length of an answer."""

    EXACT = "exact"
    """The truth: a perfect predictor."""
    MEAN = "mean"
    """The workload's mean for every request."""
    UNKNOWN = "unknown"
    """Nothing: 256 tokens are assumed."""


class _Workload(Strict):
    expected_output: Expected = Expected.EXACT
    classes: Annotated[tuple[RequestClass, ...], Field(max_length=32)] = ()
    """Absent: one class that holds the scenario's promise."""


class Poisson(_Workload):
    """Poisson arrivals that go to the schedulers in turn."""

    kind: Literal["poisson"]
    rate_per_second: Positive
    """Over all schedulers."""
    duration_seconds: Positive
    lengths: Lengths = Lengths(dataset=Dataset.CNN_DAILYMAIL)


class Diurnal(_Workload):
    """Poisson arrivals whose rate follows the hours of each region."""

    kind: Literal["diurnal"]
    requests: Positive
    """How many in the mean, over all regions and hours: the shape's unit does not matter."""
    hours: Annotated[int, Field(ge=1, le=8_784)] = 24
    start_hour: Annotated[int, Field(ge=0)] = 0
    """Row of the shape that the run starts with."""
    columns: dict[Name, Name]
    """Column of the shape by region whose schedulers get these requests."""
    file: str | None = None
    """A shape of your own: CSV with the columns timestamp (Unix seconds), datetime, and one per region, a row per hour.
    Absent: requests to Wikipedia by AWS region (`data/casper`)."""
    lengths: Lengths = Lengths(dataset=Dataset.CNN_DAILYMAIL)


class Azure(_Workload):
    """A stretch of the Azure LLM inference trace of 2023."""

    kind: Literal["azure"]
    trace: Literal["conversation", "code"] = "conversation"
    file: str | None = None
    """Another file with the columns TIMESTAMP, ContextTokens, GeneratedTokens."""
    rate_per_second: Positive | None = None
    """Stretches time to this mean rate; absent: as recorded."""
    duration_seconds: Positive | None = None
    skip: Annotated[int, Field(ge=0)] = 0
    """Requests to leave out at the start."""


class Mooncake(_Workload):
    """The Mooncake conversation trace with its sessions and shared prefixes."""

    kind: Literal["mooncake"]
    file: str | None = None
    """Another file of the shape of `data/mooncake-fast25`."""
    speed: Positive = 1.0
    """As many times as fast as recorded."""
    requests: Count | None = None
    """The first so many; absent: all."""


class Trace(_Workload):
    """A trace of your own (docs/simulate.md): CSV, or JSON lines in a file that ends in `.jsonl`."""

    kind: Literal["trace"]
    file: str
    speed: Positive = 1.0
    """As many times as fast as recorded."""
    requests: Count | None = None
    """The first so many; absent: all."""
    longest_gap_seconds: Positive | None = None
    """A longer time without a request is refused as a hole in the recording; absent: nobody asked then."""
    block_tokens: Count | None = None
    """Tokens per id in `block_ids`; by default the engines' block size. A multiple of that."""


Workload = Annotated[Poisson | Diurnal | Azure | Mooncake | Trace, Field(discriminator="kind")]
