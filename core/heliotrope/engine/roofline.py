"""What a transformer step must compute and move, and what an accelerator can: the priors of the calibration.

Counts are for decoder-only transformers with grouped-query attention and a gated MLP: dense (Llama, Qwen, Mistral), or
with a mixture of experts (Mixtral).
"""

from dataclasses import dataclass

BYTES_PER_VALUE = 2
"""16-bit weights, activations and KV cache."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Data-sheet figures of one accelerator, and its standing power."""

    name: str
    peak_flops: float
    """Dense 16-bit FLOP/s."""
    memory_bytes: float
    memory_bytes_per_second: float
    link_bytes_per_second: float
    """To its peers, one direction."""
    tdp_watts: float
    idle_watts: float
    """With a process that holds a CUDA context and computes nothing: the clocks stay up."""
    unloaded_watts: float
    """Without any process."""
    min_mhz: int
    max_mhz: int
    step_mhz: int


# The paper carbon-slo-tension (§III-B) measures 72 W idle with a model loaded. Power without a process: less the
# 26.3 W that a CUDA context adds on an A100 (arXiv:2605.23918, table 2).
A100_40GB = Accelerator(
    name="A100-SXM4-40GB",
    peak_flops=312e12,
    memory_bytes=40e9,
    memory_bytes_per_second=1555e9,
    link_bytes_per_second=300e9,
    tdp_watts=400.0,
    idle_watts=72.0,
    unloaded_watts=45.7,
    min_mhz=210,
    max_mhz=1410,
    step_mhz=15,
)
A100_80GB = Accelerator(
    name="A100-SXM4-80GB",
    peak_flops=312e12,
    memory_bytes=80e9,
    memory_bytes_per_second=2039e9,
    link_bytes_per_second=300e9,
    tdp_watts=400.0,
    idle_watts=72.0,
    unloaded_watts=45.7,
    min_mhz=210,
    max_mhz=1410,
    step_mhz=15,
)
# Idle with a CUDA context 121.7 W, without 71.8 W, both measured: arXiv:2605.23918, table 2.
H100_80GB = Accelerator(
    name="H100-SXM5-80GB",
    peak_flops=989e12,
    memory_bytes=80e9,
    memory_bytes_per_second=3350e9,
    link_bytes_per_second=450e9,
    tdp_watts=700.0,
    idle_watts=121.7,
    unloaded_watts=71.8,
    min_mhz=345,
    max_mhz=1980,
    step_mhz=15,
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of a decoder-only transformer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    experts: int = 1
    """MLPs per layer."""
    active_experts: int = 1
    """Of them each token uses so many."""

    @property
    def head_size(self) -> int:
        """Values per attention head."""
        return self.hidden // self.heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of all layers together that a token uses, each once."""
        return self._parameters(self.active_experts)

    @property
    def stored_layer_parameters(self) -> int:
        """Parameters of all layers together, whoever uses them."""
        return self._parameters(self.experts)

    def _parameters(self, experts: int) -> int:
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * self.head_size
        return self.layers * (attention + experts * 3 * self.hidden * self.intermediate)

    @property
    def head_parameters(self) -> int:
        """Parameters of the output projection; used once per sampled token."""
        return self.vocabulary * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Memory that the weights take, both embeddings included (not tied)."""
        return BYTES_PER_VALUE * (self.stored_layer_parameters + 2 * self.head_parameters)

    @property
    def step_weight_bytes(self) -> int:
        """Weights that every step reads: all but the input embedding, of which it reads single rows.

        All experts count, as in steps of sixteen tokens or more; with few tokens some are not read.
        """
        return BYTES_PER_VALUE * (self.stored_layer_parameters + self.head_parameters)

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value of one token in all layers."""
        return BYTES_PER_VALUE * 2 * self.layers * self.kv_heads * self.head_size

    @property
    def attention_flops_per_pair(self) -> int:
        """FLOPs of one query token on one cached token in all layers: a product with the key, one with the value."""
        return 4 * self.layers * self.hidden

    def prefill_flops(self, tokens: float, requests: float, sum_squares: float) -> float:
        """FLOPs of prefill; causal attention computes half of the n² pairs."""
        return (
            2 * self.layer_parameters * tokens
            + 2 * self.head_parameters * requests
            + self.attention_flops_per_pair * sum_squares / 2
        )

    def decode_flops(self, sequences: float, kv_tokens: float) -> float:
        """FLOPs of decode steps, given the sums of their batch sizes and of their cached tokens."""
        return 2 * (self.layer_parameters + self.head_parameters) * sequences + (
            self.attention_flops_per_pair * kv_tokens
        )

    def step_bytes(self, steps: float, kv_tokens: float) -> float:
        """Bytes that steps read from memory: the weights each, and the cached tokens they attend to."""
        return self.step_weight_bytes * steps + self.kv_bytes_per_token * kv_tokens

    def all_reduce_seconds_per_token(self, accelerator: Accelerator, tensor_parallel: int) -> float:
        """Time that two ring all-reduces per layer need on the links for one token; 0 on a single accelerator."""
        ring = 2 * (tensor_parallel - 1) / tensor_parallel
        return 2 * self.layers * ring * self.hidden * BYTES_PER_VALUE / accelerator.link_bytes_per_second

    def kv_capacity_tokens(
        self, accelerator: Accelerator, tensor_parallel: int, utilization: float = 0.9, block: int = 16
    ) -> int:
        """Tokens that fit beside the weights, in whole blocks.

        Memory counts in decimal gigabytes; the device's somewhat larger true size holds activations and graphs.
        """
        free = utilization * accelerator.memory_bytes * tensor_parallel - self.weight_bytes
        return max(0, int(free // (self.kv_bytes_per_token * block))) * block


LLAMA_3_8B = Architecture(layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocabulary=128256)
"""Llama 3 and 3.1 alike."""
LLAMA_3_70B = Architecture(layers=80, hidden=8192, heads=64, kv_heads=8, intermediate=28672, vocabulary=128256)
"""Llama 3 and 3.1 alike."""
LLAMA_2_7B = Architecture(layers=32, hidden=4096, heads=32, kv_heads=32, intermediate=11008, vocabulary=32000)
LLAMA_2_70B = Architecture(layers=80, hidden=8192, heads=64, kv_heads=8, intermediate=28672, vocabulary=32000)
QWEN_2_7B = Architecture(layers=28, hidden=3584, heads=28, kv_heads=4, intermediate=18944, vocabulary=152064)
"""Qwen 2 and 2.5 alike."""
MIXTRAL_8X7B = Architecture(
    layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocabulary=32000, experts=8, active_experts=2
)
