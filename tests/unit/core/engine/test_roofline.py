"""Counts of parameters, FLOPs and bytes against published and hand-worked numbers."""

import pytest

from heliotrope.engine.roofline import (
    A100_40GB,
    A100_80GB,
    H100_80GB,
    LLAMA_2_7B,
    LLAMA_2_70B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    MIXTRAL_8X7B,
    Architecture,
)

TINY = Architecture(layers=2, hidden=8, heads=4, kv_heads=2, intermediate=16, vocabulary=10)


@pytest.mark.parametrize(
    ("model", "billions"), [(LLAMA_3_8B, 8.03), (LLAMA_3_70B, 70.55), (LLAMA_2_7B, 6.74), (LLAMA_2_70B, 68.98)]
)
def test_parameters_are_those_of_the_model_cards(model: Architecture, billions: float) -> None:
    assert model.weight_bytes / 2 == pytest.approx(billions * 1e9, rel=1e-3)


def test_kv_cache_of_a_token() -> None:
    # The paper: 128 KiB for Llama-3.1-8B.
    assert LLAMA_3_8B.kv_bytes_per_token == 128 * 1024
    assert LLAMA_3_70B.kv_bytes_per_token == 320 * 1024
    assert LLAMA_2_7B.kv_bytes_per_token == 512 * 1024


def test_a_tiny_model_by_hand() -> None:
    # A layer: queries and output 2 × 64, keys and values 2 × 8 × 4, MLP 3 × 8 × 16.
    assert TINY.layer_parameters == 2 * (128 + 64 + 384)
    assert TINY.head_parameters == 80
    assert TINY.weight_bytes == 2 * (1152 + 160)
    assert TINY.step_weight_bytes == 2 * (1152 + 80)
    assert TINY.kv_bytes_per_token == 2 * 2 * 2 * 2 * 2
    # Per pair and layer: 2 × 8 FLOPs with the key, 2 × 8 with the value.
    assert TINY.attention_flops_per_pair == 64
    assert TINY.prefill_flops(5, 1, 25) == 2 * 1152 * 5 + 2 * 80 + 64 * 25 / 2
    assert TINY.decode_flops(3, 30) == 2 * 1232 * 3 + 64 * 30
    assert TINY.step_bytes(2, 30) == 2464 * 2 + 32 * 30


def test_links_carry_two_all_reduces_a_layer() -> None:
    # Ring over 4: each sends 1.5 × 8,192 × 2 bytes, 160 times, at 450 GB/s.
    assert LLAMA_3_70B.all_reduce_seconds_per_token(H100_80GB, 4) == pytest.approx(160 * 1.5 * 16_384 / 450e9)
    assert LLAMA_3_8B.all_reduce_seconds_per_token(H100_80GB, 1) == 0.0


def test_kv_capacity_is_what_the_weights_leave() -> None:
    # 0.9 × 40e9 - 16.06e9 = 19.94e9 bytes / 131,072 = 152,130, in blocks of 16.
    assert LLAMA_3_8B.kv_capacity_tokens(A100_40GB, 1) == 152_128
    assert LLAMA_3_70B.kv_capacity_tokens(A100_80GB, 4) == LLAMA_3_70B.kv_capacity_tokens(H100_80GB, 4)
    assert LLAMA_3_70B.kv_capacity_tokens(A100_40GB, 1) == 0


def test_a_mixture_of_experts_stores_all_and_uses_two() -> None:
    per_expert = 32 * 3 * 4096 * 14336
    assert MIXTRAL_8X7B.stored_layer_parameters - MIXTRAL_8X7B.layer_parameters == 6 * per_expert
    assert MIXTRAL_8X7B.weight_bytes == pytest.approx(46.7e9 * 2, rel=0.005)
    assert MIXTRAL_8X7B.layer_parameters + MIXTRAL_8X7B.head_parameters == pytest.approx(12.9e9, rel=0.02)
    assert LLAMA_3_8B.stored_layer_parameters == LLAMA_3_8B.layer_parameters
