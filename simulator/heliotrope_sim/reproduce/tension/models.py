"""What is served: models, their engines, loads, lengths and promises (paper carbon-slo-tension, table II and §V-A)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from heliotrope_sim.fleet.lengths import CNN_DAILYMAIL, OPEN_ORCA, Lengths

LOADS = ("low", "moderate", "high")


@dataclass(frozen=True, slots=True)
class Served:
    """One model with its traffic."""

    name: str
    title: str
    profile: str
    engines_per_node: int
    """A node has eight GPUs."""
    batch_capacity: int
    """Of an engine: what schedulers plan with, and what it admits."""
    lengths: Lengths
    ttft_slo_seconds: float
    tpot_slo_seconds: float
    rates: tuple[float, ...]
    """Requests per second of the whole fleet at low, moderate and high load."""

    def rate(self, load: str) -> float:
        """Of a load of `LOADS`."""
        return self.rates[LOADS.index(load)]


LLAMA = Served(
    "llama", "Llama-3.1-8B", "llama-3.1-8b-a100-40gb", 8, 40, CNN_DAILYMAIL, 3.0, 0.1, (1200.0, 2400.0, 4000.0)
)
QWEN = Served("qwen", "Qwen2.5-7B", "qwen-2.5-7b-a100-40gb", 8, 40, CNN_DAILYMAIL, 3.0, 0.1, LLAMA.rates)
MIXTRAL = Served(
    "mixtral", "Mixtral-8x7B", "mixtral-8x7b-a100-40gb-tp4", 2, 400, OPEN_ORCA, 3.0, 0.2, (800.0, 1200.0, 2000.0)
)
# Mean output lengths are not printed for these two. GovReport's summaries have 553 words where its reports have 9,409
# (Huang et al. 2021), at the paper's 10.7K tokens per report; the mixed value is the mean over six such data sets.
LONG = Served(
    "long",
    "Mixtral-8x7B, long prompts",
    MIXTRAL.profile,
    2,
    16,
    Lengths(10_700.0, 630.0, most_prompt_tokens=32_768),
    4.5,
    0.2,
    (50.0,),
)
MIXED = Served(
    "mixed",
    "Mixtral-8x7B, mixed prompts",
    MIXTRAL.profile,
    2,
    24,
    Lengths(2_900.0, 200.0, prompt_variation=1.5, output_variation=0.8, most_prompt_tokens=32_768),
    4.5,
    0.2,
    (200.0,),
)
SERVED: Mapping[str, Served] = MappingProxyType({each.name: each for each in (LLAMA, QWEN, MIXTRAL, LONG, MIXED)})
DENSE = (LLAMA, QWEN)
MODELS = (LLAMA, QWEN, MIXTRAL)
