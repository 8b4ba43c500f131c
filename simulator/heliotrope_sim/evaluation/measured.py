"""Measurements of others on real accelerators, as points: what ran, and how long it took or what it drew."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.decide.candidates import Hardware
from heliotrope.units import MILLISECONDS_PER_SECOND, seconds_from_milliseconds
from heliotrope_sim.data import data_file

NAN = float("nan")
A100_80GB_TDP_WATTS = 400.0
MILLIWATTS_PER_WATT = 1_000.0


class Label(StrEnum):
    """What was measured."""

    TTFT = "ttft_seconds"
    TPOT = "tpot_seconds"
    GENERATION_PACE = "seconds_per_output_token"
    """Of a whole generation, its prefill included."""
    REQUEST_JOULES = "request_joules"
    """Of all accelerators of the replica, per request."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measured configuration; NaN where the source does not say."""

    source: str
    hardware: Hardware
    batch: float
    prompt_tokens: float
    output_tokens: float
    labels: Mapping[Label, float]

    @property
    def configuration(self) -> str:
        """Model on accelerators: what a variant would be."""
        h = self.hardware
        return f"{self.source}/{h.model}/{h.accelerator}x{h.accelerators}"


def load_points() -> tuple[Point, ...]:
    """Every point that ships with a label.

    Raises:
        DataFileMissingError: if a file does not ship.
    """
    return (*_ml_energy(), *_argonne_latency(), *_argonne_power(), *_splitwise())


def _rows(name: str) -> list[dict[str, str]]:
    with data_file(name).open(newline="") as file:
        return list(csv.DictReader(file))


def _ml_energy() -> list[Point]:
    return [
        Point(
            f"ml-energy/{r['task']}",
            Hardware(r["gpu"], int(r["tp"]) * int(r["pp"]), r["model"], "both"),
            batch=float(r["avg_batch"]),
            prompt_tokens=NAN,
            output_tokens=float(r["avg_output_tokens"]),
            labels={
                Label.TPOT: float(r["avg_tpot_s"]),
                Label.REQUEST_JOULES: float(r["energy_per_request_j"]),
            },
        )
        for r in _rows("ml-energy-leaderboard-v2/llm_text_generation.csv")
    ]


def _argonne(file: str, source: str, labels: Callable[[dict[str, str], float], Mapping[Label, float]]) -> list[Point]:
    points = []
    for r in _rows(f"argonne-llm-inference-bench/{file}"):
        tokens = float(r["Input Output Length"])
        accelerator = r["Hardware"] if r["Framework"] == "vLLM" else f"{r['Hardware']}, {r['Framework']}"
        points.append(
            Point(
                source,
                Hardware(accelerator, int(r["Num of Hardware"]), r["Model"], "both"),
                batch=float(r["Batch Size"]),
                prompt_tokens=tokens,
                output_tokens=tokens,
                labels=labels(r, tokens),
            )
        )
    return points


def _argonne_latency() -> list[Point]:
    return _argonne(
        "vllm_latency.csv",
        "argonne/latency",
        lambda r, tokens: {Label.GENERATION_PACE: float(r["Latency"]) / tokens},
    )


def _argonne_power() -> list[Point]:
    return _argonne(
        "power.csv",
        "argonne/power",
        lambda r, _: {
            Label.REQUEST_JOULES: float(r["avg_power"])
            / MILLIWATTS_PER_WATT
            * float(r["Num of Hardware"])
            * float(r["Latency"])
            / float(r["Batch Size"])
        },
    )


def _splitwise() -> list[Point]:
    points = []
    for r in _rows("splitwise-sim/llama2_70b_times.csv"):
        labels = {
            Label.TTFT: seconds_from_milliseconds(float(r["prompt_time"])),
            Label.TPOT: seconds_from_milliseconds(float(r["token_time"])),
        }
        power, count = float(r["average_power"]), int(r["tensor_parallel"])
        if power > 0.0:  # 0: not measured
            seconds = float(r["e2e_time"]) / MILLISECONDS_PER_SECOND
            labels[Label.REQUEST_JOULES] = power * A100_80GB_TDP_WATTS * count * seconds / float(r["batch_size"])
        points.append(
            Point(
                "splitwise",
                Hardware(r["hardware"], count, r["model"], "both"),
                batch=float(r["batch_size"]),
                prompt_tokens=float(r["prompt_size"]),
                output_tokens=float(r["token_size"]),
                labels=labels,
            )
        )
    return points
