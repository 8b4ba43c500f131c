"""The shipped profiles: all load, all are physically possible, and they are what the calibration writes."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope.errors import UnknownProfileError

ROOT = Path(__file__).resolve().parents[4]
TDP_WATTS = {"A100": 400.0, "H100": 700.0}
shipped = pytest.mark.parametrize("name", profiles.available())


def test_the_profiles_that_ship() -> None:
    assert profiles.available() == (
        "llama-3.1-70b-a100-80gb-tp4",
        "llama-3.1-70b-h100-tp4",
        "llama-3.1-8b-a100-40gb",
        "llama-3.1-8b-h100",
    )


def test_an_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownProfileError, match=r"llama-3\.1-8b-h100"):
        profiles.load("gpt-2-on-a-toaster")


@shipped
def test_a_profile_is_its_file(name: str) -> None:
    text = (resources.files("heliotrope.engine.profiles") / f"{name}.json").read_text(encoding="utf-8")
    engine = profiles.load(name)
    assert engine.name == name
    assert engine.to_mapping() == json.loads(text)["model"]


@shipped
def test_a_profile_says_what_it_is_worth(name: str) -> None:
    text = (resources.files("heliotrope.engine.profiles") / f"{name}.json").read_text(encoding="utf-8")
    fit = json.loads(text)["fit"]
    error = profiles.load(name).error
    assert fit["mape_held_out"]["decode_seconds"] == pytest.approx(error.decode_seconds, rel=1e-3)
    assert all(fit["mape_held_out"][key] >= fit["mape_in_sample"][key] for key in fit["mape_in_sample"])
    assert {"prefill.seconds_per_token_squared", "energy.prefill_joules_per_token_squared"} <= set(fit["prior_only"])
    assert all(low <= high for low, high in fit["intervals_90"].values())


@shipped
def test_power_lies_between_idle_and_the_limit_of_the_devices(name: str) -> None:
    engine = profiles.load(name)
    limit = TDP_WATTS[engine.accelerator[:4]] * engine.tensor_parallel
    assert engine.unloaded_watts is not None
    assert 0 < engine.unloaded_watts < engine.sleep_watts <= engine.idle_watts
    for batch in (1.0, 8.0, 64.0):
        for length in (100.0, 1000.0, 4000.0):
            watts = engine.decode_joules(batch, batch * length) / engine.decode_seconds(batch, batch * length)
            assert engine.idle_watts < watts < limit
    for tokens in (1.0, 128.0, 1024.0, 8192.0):
        watts = engine.prefill_joules(tokens) / engine.prefill_seconds(tokens)
        assert engine.idle_watts < watts < 1.05 * limit


@shipped
def test_a_prompt_of_one_token_takes_a_decode_step_of_one(name: str) -> None:
    engine = profiles.load(name)
    assert engine.prefill_seconds(1.0) == pytest.approx(engine.decode_seconds(1.0, 1.0), rel=0.05)


@shipped
def test_memory_is_whole_blocks(name: str) -> None:
    engine = profiles.load(name)
    assert engine.kv_capacity_tokens % engine.block_size == 0
    assert engine.kv_capacity_tokens > engine.max_num_batched_tokens


def test_the_better_hardware_is_better() -> None:
    def cost(name: str) -> tuple[float, float]:
        engine: EngineModel = profiles.load(name)
        return float(engine.prefill_seconds(1000.0)), float(engine.decode_seconds(16.0, 16_000.0))

    for better, worse in (
        ("llama-3.1-8b-h100", "llama-3.1-8b-a100-40gb"),
        ("llama-3.1-70b-h100-tp4", "llama-3.1-70b-a100-80gb-tp4"),
        ("llama-3.1-8b-h100", "llama-3.1-70b-h100-tp4"),
    ):
        assert all(a < b for a, b in zip(cost(better), cost(worse), strict=True))


@pytest.mark.slow
def test_the_profiles_are_what_the_calibration_writes() -> None:
    script = ROOT / "bench/calibrate_engines.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
