"""Prompt and answer lengths of recorded requests, by what they were for."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.data import data_file
from heliotrope_sim.engine import Request
from heliotrope_sim.workload.trace import load_azure

MIX: Mapping[str, float] = {"conversation": 0.7, "code": 0.15, "summary": 0.15}
"""Share of each application in the generated load."""

PREFIX_GROUPS = 12
PREFIX_SHARE = 0.4
"""Share of requests that begin with the system prompt of one of the groups."""
PREFIX_TOKENS = (128, 1_024)
"""Bounds of the lengths of system prompts."""
HASHES_OF_GROUP = 1_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """One request's lengths."""

    application: str
    prompt_tokens: int
    output_tokens: int
    prefix_group: int = -1
    """Which system prompt it begins with; -1: its own."""
    prefix_tokens: int = 0


def engine_request(request_id: str, lengths: Lengths, block_size: int) -> Request:
    """As it is submitted to an engine; of requests of one group the blocks of the system prompt are equal."""
    blocks = lengths.prefix_tokens // block_size
    hashes = [lengths.prefix_group * HASHES_OF_GROUP + i for i in range(blocks)]
    return Request(request_id, lengths.prompt_tokens, lengths.output_tokens, hashes)


def load_lengths() -> Mapping[str, NDArray[np.int64]]:
    """Rows (prompt tokens, output tokens) by application, in the order of the files.

    Sources: Azure LLM inference traces 2023 (conversation, code), arXiv summarisation as vidur uses it (summary).

    Raises:
        InvalidInputError: if a row of a trace cannot be read.
        DataFileMissingError: if a file does not ship.
    """
    azure = {
        name: np.array([(r.prompt_tokens, r.output_tokens) for r in load_azure(data_file(f"azure-llm-2023/{file}"))])
        for name, file in (("conversation", "conv_first_20min.csv"), ("code", "code_first_8min.csv"))
    }
    with data_file("vidur/arxiv_summarization_lengths.csv").open(newline="") as file:
        summary = np.array([(int(r["num_prefill_tokens"]), int(r["num_decode_tokens"])) for r in csv.DictReader(file)])
    return {name: np.maximum(rows, 1) for name, rows in (*azure.items(), ("summary", summary))}


def halves(
    lengths: Mapping[str, NDArray[np.int64]],
) -> tuple[Mapping[str, NDArray[np.int64]], Mapping[str, NDArray[np.int64]]]:
    """Every other recorded request to train on, and those between to hold out."""
    return {name: rows[::2] for name, rows in lengths.items()}, {name: rows[1::2] for name, rows in lengths.items()}


def shuffled(lengths: Mapping[str, NDArray[np.int64]], rng: np.random.Generator) -> list[Lengths]:
    """Every recorded request once, in random order."""
    requests = [Lengths(name, int(prompt), int(output)) for name, rows in lengths.items() for prompt, output in rows]
    return [requests[i] for i in rng.permutation(len(requests))]


def draw(
    lengths: Mapping[str, NDArray[np.int64]],
    rng: np.random.Generator,
    mix: Mapping[str, float] = MIX,
) -> Iterator[Lengths]:
    """Requests without end: an application by its share, then one of its recorded requests."""
    names = list(mix)
    shares = np.array([mix[name] for name in names])
    shares = shares / shares.sum()
    prefixes = rng.integers(*PREFIX_TOKENS, size=PREFIX_GROUPS, endpoint=True)
    while True:
        name = names[int(rng.choice(len(names), p=shares))]
        prompt, output = lengths[name][int(rng.integers(len(lengths[name])))]
        group = int(rng.integers(PREFIX_GROUPS)) if rng.random() < PREFIX_SHARE else -1
        prefix = min(int(prefixes[group]), int(prompt) - 1) if group >= 0 else 0
        yield Lengths(name, int(prompt), int(output), group, prefix)
