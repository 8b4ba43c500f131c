"""The public measurements in data/ as runs of known work. Assumptions about what they did not state are here."""

import csv
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from heliotrope.engine.calibration import EnergyRun, TimedRun, TimeFit
from heliotrope.engine.roofline import LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B, MIXTRAL_8X7B, Accelerator, Architecture
from heliotrope.engine.work import generation_work, prefill_work

DATA = Path(__file__).resolve().parents[2] / "data"

GENERATION_NOISE = 0.03
PREFILL_NOISE = 0.03
OPERATOR_NOISE = 0.06
"""Operator sums against whole steps: Argonne's prefill of 16,384 tokens differs by 5 % from vidur's operators."""
POWER_NOISE = 0.05
LEADERBOARD_NOISE = 0.10
"""Prompt lengths are not stated and the host's waiting time is estimated."""
LEADERBOARD_PROMPT_TOKENS = 200
TDP_NOISE = 0.01
"""The power limit is enforced by the device."""
ARGONNE_TOKEN_BUDGET = 8192


def _rows(path: str) -> list[dict[str, str]]:
    with (DATA / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def generations(
    gpu: str, count: int, model: str, framework: str, capacity_tokens: float
) -> list[tuple[int, int, float]]:
    """Argonne's (length, batch, seconds) whose KV cache fits; larger ones measure preemption, not steps."""
    return [
        (length, batch, float(row["Latency"]))
        for row in _rows("argonne-llm-inference-bench/latency.csv")
        if row["Hardware"] == f"Nvidia {gpu} GPU"
        and row["Num of Hardware"] == str(count)
        and row["Model"] == f"meta-llama/{model}"
        and row["Framework"] == framework
        and (length := int(row["Input Output Length"])) * 2 * (batch := int(row["Batch Size"])) <= capacity_tokens
    ]


def vllm_generations(
    gpu: str, count: int, model: str, capacity_tokens: float, least_batch: int
) -> list[tuple[int, int, float]]:
    """As `generations`, of any model that Argonne ran on vLLM; repeats are averaged."""
    repeats: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in _rows("argonne-llm-inference-bench/vllm_latency.csv"):
        length, batch = int(row["Input Output Length"]), int(row["Batch Size"])
        wanted = (row["Hardware"], row["Num of Hardware"], row["Model"]) == (f"Nvidia {gpu} GPU", str(count), model)
        if wanted and batch >= least_batch and 2 * length * batch <= capacity_tokens:
            repeats[length, batch].append(float(row["Latency"]))
    return [(length, batch, statistics.mean(seconds)) for (length, batch), seconds in sorted(repeats.items())]


def of_another_model(
    measured: list[tuple[int, int, float]], old: Architecture, new: Architecture, accelerator: Accelerator
) -> list[tuple[int, int, float]]:
    """The same generations of a model of another size on one accelerator: the time of its bytes and layers exchanged.

    Bytes move at 80 % of the bandwidth, prompts compute at 70 % of the peak, as in the prior.
    """
    exchanged = []
    for length, batch, seconds in measured:
        work = generation_work(batch, length, length, ARGONNE_TOKEN_BUDGET)
        moved = work.bytes_moved(new) - work.bytes_moved(old)
        computed = 2 * (new.layer_parameters - old.layer_parameters) * sum(work.prefill_tokens)
        change = moved / (0.8 * accelerator.memory_bytes_per_second) + computed / (0.7 * accelerator.peak_flops)
        exchanged.append((length, batch, seconds + change))
    return exchanged


def generation_runs(measured: list[tuple[int, int, float]], noise: float = GENERATION_NOISE) -> list[TimedRun]:
    """Whole generations; one group per length."""
    return [
        TimedRun(
            f"generation of {length}",
            "decode",
            generation_work(batch, length, length, ARGONNE_TOKEN_BUDGET),
            seconds,
            noise,
        )
        for length, batch, seconds in measured
    ]


def on_faster_memory(
    measured: list[tuple[int, int, float]], model: Architecture, count: int, old: Accelerator, new: Accelerator
) -> list[tuple[int, int, float]]:
    """The same generations on a memory of another bandwidth: the time of the bytes moved is exchanged."""
    difference = 1 / old.memory_bytes_per_second - 1 / new.memory_bytes_per_second
    return [
        (
            length,
            batch,
            seconds
            - generation_work(batch, length, length, ARGONNE_TOKEN_BUDGET).bytes_moved(model) / count * difference,
        )
        for length, batch, seconds in measured
    ]


def first_token_runs(gpu: str, model: str) -> list[TimedRun]:
    """Argonne's time to the first token of 16 prompts of 1,024 tokens (vLLM)."""
    return [
        TimedRun(
            "first token",
            "prefill",
            prefill_work(16 * 1024, 16, 16 * 1024**2),
            float(row["Latency"]),
            PREFILL_NOISE,
        )
        for row in _rows("argonne-llm-inference-bench/ttft.csv")
        if row["Hardware"] == f"Nvidia {gpu} GPU" and row["Framework"] == "vLLM" and row["Model"] == model
    ]


def operator_runs(
    device: str,
    measured_model: str,
    tensor_parallel: int,
    model: Architecture,
    accelerator: Accelerator,
    single_step_seconds: float,
    scale: float = 1.0,
) -> list[TimedRun]:
    """Operator times of vidur as prefill steps without attention.

    A step is its layers' operators × `scale` (parameters of the model over those of the measured one), plus what the
    links need, plus the host's share: what the measured decode step of one sequence takes beyond its operators. One
    group per octave of tokens.
    """
    by_tokens: dict[int, list[float]] = defaultdict(list)
    for row in _rows("vidur/mlp_op_median_ms.csv"):
        if (row["device"], row["model"], row["tp"]) == (device, measured_model, str(tensor_parallel)):
            layer = sum(float(value) for key, value in row.items() if key.endswith("_ms") and key != "emb_ms" and value)
            by_tokens[int(row["num_tokens"])].append(layer / 1e3 * model.layers * scale)
    seconds = {tokens: statistics.median(values) for tokens, values in sorted(by_tokens.items())}
    host = single_step_seconds - seconds[1]
    link = model.all_reduce_seconds_per_token(accelerator, tensor_parallel)
    return [
        TimedRun(
            f"operators 2^{int(math.log2(tokens))}",
            "prefill",
            prefill_work(tokens, 1, 0),
            value + host + link * tokens,
            OPERATOR_NOISE,
        )
        for tokens, value in seconds.items()
    ]


def argonne_energy(gpu: str, accelerator: Accelerator) -> list[EnergyRun]:
    """Average power × duration of generations of 1,024 tokens on one accelerator."""
    models = {"meta-llama/Meta-Llama-3-8B": LLAMA_3_8B, "meta-llama/Llama-2-7b-hf": LLAMA_2_7B}
    runs = []
    for row in _rows("argonne-llm-inference-bench/power.csv"):
        model = models[row["Model"]]
        length, batch, seconds = int(row["Input Output Length"]), int(row["Batch Size"]), float(row["Latency"])
        if row["Hardware"] != f"Nvidia {gpu} GPU" or 2 * length * batch > model.kv_capacity_tokens(accelerator, 1):
            continue
        runs.append(
            EnergyRun(
                f"Argonne {row['Framework']} {row['Model'].removeprefix('meta-llama/')}",
                model,
                generation_work(batch, length, length, ARGONNE_TOKEN_BUDGET),
                seconds,
                seconds * float(row["avg_power"]) / 1e3,
                POWER_NOISE,
            )
        )
    return runs


def leaderboard_energy(gpu: str, size: str, time: TimeFit, accelerator: Accelerator) -> list[EnergyRun]:
    """ml-energy's J/request as energy of a batch in lockstep, the slow host's waiting time taken out."""
    model = {"8B": LLAMA_3_8B, "70B": LLAMA_3_70B}[size]
    runs = []
    for row in _rows("ml-energy-leaderboard-v2/llama_3_1_chat.csv"):
        if gpu not in row["gpu"] or f"-{size}-" not in row["model"]:
            continue
        batch, output, count = float(row["avg_batch"]), float(row["avg_output_tokens"]), int(row["tp"])
        work = generation_work(batch, LEADERBOARD_PROMPT_TOKENS, output, LEADERBOARD_PROMPT_TOKENS)
        duration = batch * output / float(row["token_throughput_tps"])
        run = EnergyRun(
            f"ml-energy {size}",
            model,
            work,
            duration * count,
            batch * float(row["energy_per_request_j"]),
            LEADERBOARD_NOISE,
        )
        runs.append(run.without_waiting(time.seconds(work) * count, accelerator.idle_watts))
    return runs


def mixtral_energy(gpu: str, time: TimeFit, accelerator: Accelerator) -> list[EnergyRun]:
    """ml-energy's J/request of Mixtral-8x7B on four accelerators, as `leaderboard_energy`."""
    runs = []
    for row in _rows("ml-energy-leaderboard-v2/llm_text_generation.csv"):
        batch, output, count = float(row["avg_batch"]), float(row["avg_output_tokens"]), int(row["tp"])
        if gpu not in row["gpu"] or "Mixtral-8x7B" not in row["model"] or row["task"] != "chat" or count != 4:
            continue
        work = generation_work(batch, LEADERBOARD_PROMPT_TOKENS, output, LEADERBOARD_PROMPT_TOKENS)
        duration = batch * output / float(row["token_throughput_tps"])
        joules = batch * float(row["energy_per_request_j"])
        run = EnergyRun("ml-energy Mixtral", MIXTRAL_8X7B, work, duration * count, joules, LEADERBOARD_NOISE)
        runs.append(run.without_waiting(time.seconds(work) * count, accelerator.idle_watts))
    return runs


def splitwise_energy(time: TimeFit, model: Architecture, accelerator: Accelerator) -> list[EnergyRun]:
    """Splitwise's average power × duration on four A100-80GB, the slow host's waiting time taken out."""
    count, output = 4, 128
    repeats: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for row in _rows("splitwise-sim/llama2_70b_a100_power.csv"):
        repeats[int(row["prompt_size"]), int(row["batch_size"])].append(
            (float(row["e2e_time"]) / 1e3, float(row["average_power"]) * accelerator.tdp_watts)
        )
    runs = []
    for (prompt, batch), values in sorted(repeats.items()):
        duration = statistics.mean(seconds for seconds, _ in values)
        work = generation_work(batch, prompt, output, prompt * batch)
        joules = duration * count * statistics.mean(watts for _, watts in values)
        run = EnergyRun("Splitwise 70B", model, work, duration * count, joules, LEADERBOARD_NOISE)
        runs.append(run.without_waiting(time.seconds(work) * count, accelerator.idle_watts))
    return runs


def saturated_prefill_energy(accelerator: Accelerator, time: TimeFit) -> EnergyRun:
    """Prefill that saturates the accelerator draws its TDP (paper carbon-slo-tension, figure 2a, on A100); no more."""
    work = prefill_work(16 * 1024, 16, 16 * 1024**2)
    seconds = time.seconds(work)
    return EnergyRun("TDP in prefill", LLAMA_3_8B, work, seconds, seconds * accelerator.tdp_watts, TDP_NOISE)


def clock_anchor(gpu: str) -> tuple[float, float]:
    """The best clock for Llama over the maximum clock, and the share of energy that it saved."""
    records: list[dict[str, Any]] = json.loads((DATA / "mertside-dvfs/edp_optimization_results.json").read_text())
    record = next(r for r in records if r["gpu"] == gpu and r["workload"] == "llama")
    share = record["optimal_frequency_edp_mhz"] / record["max_frequency_mhz"]
    return share, record["energy_savings_edp_percent"] / 100.0
