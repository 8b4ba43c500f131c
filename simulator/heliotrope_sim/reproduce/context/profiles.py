"""Energy and speed of the paper's model–GPU pairs (appendix A, equation 8), and the deployments made of them.

A deployment is a model on a GPU type in a region. Deployment a is model a // 12, GPU a // 4 % 3 and region a % 4.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the paper."""

    name: str
    parameters: float
    context_tokens: int
    """Its limit, from the model's card."""
    kv_bytes_per_token: float
    """2 (K and V) · layers · KV heads · head size · 2 bytes, by its configuration; each layer counts in full."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU type of the paper."""

    name: str
    flops_per_second: float
    """Peak at FP16."""
    tdp_watts: float
    bytes_per_second: float
    utilisation_factor: float
    """η_h."""
    of_70b: int
    """GPUs that serve the 70B model; every other model is served by one."""


MODELS = (
    Model("Gemma-3-1B", 1e9, 32_768, 26 * 1 * 256 * 4.0),
    Model("Llama-3.2-3B", 3e9, 131_072, 28 * 8 * 128 * 4.0),
    Model("Gemma-3-4B", 4e9, 131_072, 34 * 4 * 256 * 4.0),
    Model("Mistral-7B-v0.2", 7e9, 32_768, 32 * 8 * 128 * 4.0),
    Model("Llama-3.1-70B", 70e9, 131_072, 80 * 8 * 128 * 4.0),
)
GPUS = (
    Gpu("A10", 125e12, 150.0, 600e9, 0.653, 8),
    Gpu("A100", 312e12, 400.0, 1_555e9, 1.0, 8),
    Gpu("H100", 989.5e12, 700.0, 3_350e9, 0.69, 4),
)
REGIONS = ("AT", "GB", "BE", "US-CAL-CISO")

PREFILL_POWER_SHARE = 0.85
"""f: of the TDP."""
REFERENCE_UTILISATION = 0.5
"""η_ref: MFU of prefill of the 70B model on A100."""
REFERENCE_PARAMETERS = 70e9
SCALING = 0.8
"""α: how energy per token grows with a model's size."""

PAIRS = len(MODELS) * len(GPUS)
DEPLOYMENTS = PAIRS * len(REGIONS)
POOLS = len(GPUS) * len(REGIONS)
"""A region's GPUs of one type, which its models share. Pool p is GPU p // 4 in region p % 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Columns of length 15, model by model and in each the GPUs."""

    input_joules: Floats
    """e_in: of an uncached input token."""
    prefill_tokens_per_second: Floats
    utilisation: Floats
    """MFU of prefill."""
    decode_tokens_per_second: Floats

    @property
    def relative_energy(self) -> Floats:
        """ρ: against the 70B model on A100."""
        column: Floats = self.input_joules / self.input_joules[REFERENCE_PAIR]
        return column


REFERENCE_PAIR = (len(MODELS) - 1) * len(GPUS) + 1


def profile() -> Profile:
    """Equation 8 for every pair."""
    pairs = [(m, g) for m in MODELS for g in GPUS]
    parameters = np.array([m.parameters for m, _ in pairs])
    flops = np.array([g.flops_per_second for _, g in pairs])
    watts = np.array([PREFILL_POWER_SHARE * g.tdp_watts for _, g in pairs])
    gpus = np.array([float(g.of_70b if m is MODELS[-1] else 1) for m, g in pairs])
    bandwidth = np.array([g.bytes_per_second for _, g in pairs])
    factor = np.array([g.utilisation_factor for _, g in pairs])
    utilisation = REFERENCE_UTILISATION * (parameters / REFERENCE_PARAMETERS) ** (1.0 - SCALING) * factor
    return Profile(
        input_joules=2.0 * parameters * watts / (utilisation * flops),
        prefill_tokens_per_second=utilisation * gpus * flops / (2.0 * parameters),
        utilisation=utilisation,
        decode_tokens_per_second=gpus * bandwidth / (2.0 * parameters),
    )


MODEL_OF: Indices = np.arange(DEPLOYMENTS) // (len(GPUS) * len(REGIONS))
REGION_OF: Indices = np.arange(DEPLOYMENTS) % len(REGIONS)
POOL_OF: Indices = np.arange(DEPLOYMENTS) % POOLS
PAIR_OF: Indices = np.arange(DEPLOYMENTS) // len(REGIONS)

TABLE_6 = (
    (0.048, 8_725, 0.14, 300.0),
    (0.033, 33_348, 0.21, 777.5),
    (0.027, 72_950, 0.15, 1_675.0),
    (0.115, 3_623, 0.17, 100.0),
    (0.080, 13_848, 0.27, 259.2),
    (0.064, 30_292, 0.18, 558.3),
    (0.145, 2_878, 0.18, 75.0),
    (0.101, 11_001, 0.28, 194.4),
    (0.081, 24_064, 0.19, 418.8),
    (0.227, 1_839, 0.21, 42.9),
    (0.158, 7_031, 0.32, 111.1),
    (0.127, 15_380, 0.22, 239.3),
    (1.433, 2_332, 0.33, 34.3),
    (1.000, 8_914, 0.50, 88.9),
    (0.800, 9_750, 0.34, 95.7),
)
"""As printed: relative energy, prefill in tokens/s, MFU, decode in tokens/s."""
