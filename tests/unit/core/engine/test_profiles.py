"""The shipped profiles: all load, all are physically possible, and they are what the calibration writes."""

import csv
import json
import subprocess
import sys
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
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
        "mixtral-8x7b-a100-40gb-tp4",
        "qwen-2.5-7b-a100-40gb",
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
    for batch in (1.0, 8.0, 64.0, float(engine.max_num_seqs)):
        for length in (100.0, 1000.0, 4000.0):
            watts = engine.decode_joules(batch, batch * length) / engine.decode_seconds(batch, batch * length)
            assert engine.idle_watts < watts < limit
    for tokens in (1.0, 128.0, 1024.0, 8192.0):
        watts = engine.prefill_joules(tokens) / engine.prefill_seconds(tokens)
        assert engine.idle_watts < watts < 1.05 * limit


@shipped
def test_throughput_never_falls_with_the_batch(name: str) -> None:
    # Also beyond the batches that were measured: an engine that gets slower than its batch grows never catches up.
    engine = profiles.load(name)
    batches = np.arange(1.0, engine.max_num_seqs + 1.0)
    longest = engine.kv_capacity_tokens / engine.max_num_seqs
    for length in (0.0, 1.0, *np.geomspace(10.0, longest, 20)):
        throughput = batches / engine.decode_seconds(batches, batches * length)
        assert (np.diff(throughput) > -1e-4 * throughput[:-1]).all(), f"falls for sequences of {length:.0f} tokens"


def test_a_further_sequence_costs_mixtral_no_more_than_on_a_slower_engine_that_ran_such_batches() -> None:
    # ml-energy measured up to 1,024 sequences on the same GPUs, on a vLLM whose host took more time for each of them.
    engine = profiles.load("mixtral-8x7b-a100-40gb-tp4")
    with (ROOT / "data/ml-energy-leaderboard-v2/llm_text_generation.csv").open(encoding="utf-8", newline="") as file:
        points = [
            (float(row["avg_batch"]), float(row["avg_tpot_s"]), 200.0 + float(row["avg_output_tokens"]) / 2)
            for row in csv.DictReader(file)
            if "Mixtral-8x7B" in row["model"] and "A100" in row["gpu"] and (row["task"], row["tp"]) == ("chat", "4")
        ]
    within = [(few, many) for few, many in pairwise(points) if few[0] < engine.max_num_seqs]
    assert len(within) == 6
    for (few, fast, _), (many, slow, length) in within:
        most = min(many, engine.max_num_seqs)
        ours = engine.decode_seconds(most, most * length) - engine.decode_seconds(few, few * length)
        assert ours / (most - few) < (slow - fast) / (many - few)
        assert engine.decode_seconds(few, few * length) < fast


@shipped
def test_a_prompt_of_one_token_takes_a_decode_step_of_one(name: str) -> None:
    engine = profiles.load(name)
    # Where prefill was not measured, its base is the data sheet's; the decode step's is not.
    fit = json.loads((resources.files("heliotrope.engine.profiles") / f"{name}.json").read_text(encoding="utf-8"))[
        "fit"
    ]
    apart = 0.05 if fit["points"]["prefill"] else 0.1
    assert engine.prefill_seconds(1.0) == pytest.approx(engine.decode_seconds(1.0, 1.0), rel=apart)


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
        ("qwen-2.5-7b-a100-40gb", "llama-3.1-8b-a100-40gb"),
    ):
        assert all(a < b for a, b in zip(cost(better), cost(worse), strict=True))


@pytest.mark.slow
def test_the_profiles_are_what_the_calibration_writes() -> None:
    script = ROOT / "bench/calibrate_engines.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
