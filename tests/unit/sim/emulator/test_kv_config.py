"""What a configuration of tiers costs a transfer."""

from dataclasses import replace

import pytest

from heliotrope.cache.links import DEFAULT_TIERS, Tier
from heliotrope.engine import profiles
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator import EmulatorConfig
from heliotrope_sim.emulator.kv_config import OffloadConfig, TierConfig
from heliotrope_sim.engine import KvSource, Medium, TierSpec

PROFILE = "llama-3.1-70b-h100-tp4"
MODEL = replace(profiles.load(PROFILE), kv_bytes_per_token=1000, block_size=16)


def test_a_tier_costs_what_is_stated() -> None:
    tier = TierConfig(capacity_bytes=100_000, bytes_per_second=1e6, latency_seconds=0.002, joules_per_byte=3e-9)
    (spec,) = OffloadConfig(disk=tier).specs(MODEL)
    assert spec == TierSpec(
        KvSource.DISK,
        Medium.STORAGE,
        capacity_blocks=6,
        latency_ns=2_000_000,
        ns_per_block=16_000_000,
        picojoules_per_block=48_000_000,
    )


def test_by_default_it_costs_what_the_library_says_of_the_tier() -> None:
    cpu, disk = OffloadConfig(cpu=TierConfig(capacity_bytes=10**6), disk=TierConfig(capacity_bytes=10**9)).specs(MODEL)
    for spec, tier in ((cpu, Tier.CPU), (disk, Tier.DISK)):
        link = DEFAULT_TIERS[tier]
        per_bit = link.network_joules_per_bit + link.sender_joules_per_bit + link.receiver_joules_per_bit
        assert spec.ns_per_block == pytest.approx(16_000 / link.bytes_per_second * 1e9, abs=1)
        assert spec.latency_ns == pytest.approx(link.latency_seconds * 1e9)
        assert spec.picojoules_per_block == pytest.approx(16_000 * 8 * per_bit * 1e12, abs=1)
    assert (cpu.source, cpu.medium, disk.source, disk.medium) == (
        KvSource.HOST,
        Medium.CPU,
        KvSource.DISK,
        Medium.STORAGE,
    )


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"offload": {}}, "offload"),
        ({"offload": {"cpu": {"capacity_bytes": 0}}}, "offload.cpu.capacity_bytes"),
        ({"offload": {"cpu": {"capacity_bytes": 1, "bytes_per_second": 0}}}, "offload.cpu.bytes_per_second"),
        ({"offload": {"disk": {"capacity_bytes": 1, "joules_per_byte": -1}}}, "offload.disk.joules_per_byte"),
        ({"kv_events": {"buffer_steps": 0}}, "kv_events.buffer_steps"),
        ({"kv_events": {"event_format": "json"}}, "kv_events.event_format"),
        ({"kv_events": {"endpoints": "tcp://*:1"}}, "kv_events.endpoints"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        EmulatorConfig.from_mapping({"engines": [{"name": "a", "profile": PROFILE} | settings]})
    assert error.value.path == f"engines.0.{path}"
