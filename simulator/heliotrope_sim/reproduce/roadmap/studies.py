"""Which runs answer what. Equal runs of several studies are made once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.roadmap.arms import (
    ABLATIONS,
    BASELINES,
    CACHE_AWARE,
    FULL,
    INFRASTRUCTURE,
    JOINT,
    KV,
    LEAST_LOADED,
    PHASES,
    SESSIONS,
    Arm,
)
from heliotrope_sim.reproduce.roadmap.measures import Measured
from heliotrope_sim.reproduce.roadmap.tasks import Run, play
from heliotrope_sim.reproduce.roadmap.workloads import CLASSES, LONG_AGENTIC
from heliotrope_sim.reproduce.workers import Workers

SMALL_KV_TOKENS = 40_000
"""KV memory of the runs of §8.3's KV choices: what does not fit has to come from somewhere."""
IN_PLACE = replace(JOINT, name="joint, encoded in place", encoders=False)
ALWAYS_CLEANEST = ("norway",)
"""Left out where grids are to compete: this one is nearly always the cleanest."""
COMPRESSED_HOUR_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    seeds: int
    requests: int
    loads: tuple[float, ...]
    """From underutilised to saturation."""
    sharings: tuple[float, ...]


FULL_SIZES = Sizes(5, 250, (0.2, 0.6, 1.1), (0.0, 0.8))
QUICK_SIZES = Sizes(2, 80, (0.6,), (0.2, 0.8))


@dataclass(frozen=True, slots=True)
class Found:
    """Every run that was made."""

    measured: Mapping[Run, Measured]
    sizes: Sizes
    seed: int
    quick: bool

    def of(self, arm: Arm, workload: str, make: Callable[[Arm, str, int], Run]) -> list[Measured]:
        """An arm on a workload, by seed; what `make` makes has been run."""
        return [self.measured[make(arm, workload, s)] for s in seeds(self.sizes, self.seed)]

    def matrix(self, arm: Arm, workload: str, load: float, sharing: float) -> Measured:
        """An arm in a cell of the matrix."""
        return self.measured[cell(arm, workload, load, sharing, self.sizes, self.seed)]


def sizes_of(settings: Settings) -> Sizes:
    """Of a quick or a full run."""
    return QUICK_SIZES if settings.quick else FULL_SIZES


def seeds(sizes: Sizes, seed: int) -> list[int]:
    """Of the studies of single questions."""
    return [seed * 100 + i for i in range(sizes.seeds)]


def cell(arm: Arm, workload: str, load: float, sharing: float, sizes: Sizes, seed: int) -> Run:
    """Of the matrix. Cells have seeds of their own: other requests, another hour; all arms of a cell have the same."""
    own = 50 + 10 * sizes.loads.index(load) + sizes.sharings.index(sharing)
    return Run(arm, workload, load, sharing, seed * 100 + own, sizes.requests)


def matrix_runs(sizes: Sizes, seed: int) -> list[Run]:
    """All workloads × loads × shares of prefixes × baselines."""
    return [
        cell(arm, workload, load, sharing, sizes, seed)
        for workload in CLASSES
        for load in sizes.loads
        for sharing in sizes.sharings
        for arm in BASELINES
    ]


PHASE_WORKLOADS = ("rag", "code", "chat")
KV_WORKLOADS = ("rag", "agentic")
SESSION_WORKLOADS = ("chat", "agentic", LONG_AGENTIC.name)
MODEL_WORKLOADS = ("chat", "reasoning")
ABLATION_WORKLOADS = ("chat", "rag")
GRAPH_WORKLOADS = ("agentic", "multimodal")
GRAPH_ARMS = (LEAST_LOADED, CACHE_AWARE, JOINT, IN_PLACE)


def phase_run(load: float, sizes: Sizes) -> Callable[[Arm, str, int], Run]:
    """RQ3."""
    return lambda arm, workload, seed: Run(arm, workload, load, 0.5, seed, sizes.requests)


def kv_run(sizes: Sizes) -> Callable[[Arm, str, int], Run]:
    """RQ2."""
    return lambda arm, workload, seed: Run(
        arm, workload, 0.5, 0.9, seed, sizes.requests, kv_capacity_tokens=SMALL_KV_TOKENS
    )


def session_run(sizes: Sizes) -> Callable[[Arm, str, int], Run]:
    """RQ4."""
    return lambda arm, workload, seed: Run(
        arm,
        workload,
        0.3,
        0.5,
        seed,
        sizes.requests,
        window_seconds=90.0,
        without=ALWAYS_CLEANEST,
        hour_seconds=COMPRESSED_HOUR_SECONDS,
    )


def model_run(sizes: Sizes) -> Callable[[Arm, str, int], Run]:
    """RQ5."""
    return lambda arm, workload, seed: Run(arm, workload, 0.5, 0.5, seed, sizes.requests, large=True)


def ablation_run(sizes: Sizes) -> Callable[[Arm, str, int], Run]:
    """Of grids near to each other, or carbon alone would decide whatever else is known."""
    return lambda arm, workload, seed: Run(
        arm, workload, 0.5, 0.5, seed, sizes.requests, large=True, without=ALWAYS_CLEANEST
    )


def graph_run(sizes: Sizes) -> Callable[[Arm, str, int], Run]:
    """RQ6."""
    return lambda arm, workload, seed: Run(arm, workload, 0.5, 0.5, seed, sizes.requests)


def runs(settings: Settings) -> list[Run]:
    """All that are needed for what is wanted, each once."""
    sizes, seed = sizes_of(settings), settings.seed
    found: list[Run] = []

    def add(part: str, arms: Sequence[Arm], workloads: Sequence[str], make: Callable[[Arm, str, int], Run]) -> None:
        if settings.wants(part):
            found.extend(make(arm, w, s) for w in workloads for arm in arms for s in seeds(sizes, seed))

    if settings.wants("matrix") or settings.wants("rq1"):
        found += matrix_runs(sizes, seed)
    for load in sizes.loads:
        add("rq3", tuple(PHASES.values()), PHASE_WORKLOADS, phase_run(load, sizes))
    add("rq2", tuple(KV.values()), KV_WORKLOADS, kv_run(sizes))
    add("rq4", tuple(SESSIONS.values()), SESSION_WORKLOADS, session_run(sizes))
    add("rq5", tuple(INFRASTRUCTURE.values()), MODEL_WORKLOADS, model_run(sizes))
    add("rq6", GRAPH_ARMS, GRAPH_WORKLOADS, graph_run(sizes))
    add("ablation", (FULL, *ABLATIONS.values()), ABLATION_WORKLOADS, ablation_run(sizes))
    return list(dict.fromkeys(found))


def make(settings: Settings, workers: Workers) -> Found:
    """Run them."""
    tasks = runs(settings)
    measured = workers.map("runs", play, tasks)
    found = dict(zip(tasks, measured, strict=True))
    return Found(found, sizes_of(settings), settings.seed, settings.quick)
