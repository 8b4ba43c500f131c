"""What a process of the pool is asked to do: replay a stretch of sessions under a policy."""

from dataclasses import dataclass, field
from functools import lru_cache

from heliotrope.cache.gate import OFF, Gate, parse_gate
from heliotrope_sim.reproduce.context.mooncake import mooncake
from heliotrope_sim.reproduce.context.policies import CCAR, POLICIES, Ccar
from heliotrope_sim.reproduce.context.replay import Log, Policy, Replay
from heliotrope_sim.reproduce.context.system import System
from heliotrope_sim.reproduce.context.workload import Episode, Workload, generate


@dataclass(frozen=True, slots=True)
class Hour:
    """The Mooncake trace put at an hour of 2022."""

    first_hour: int
    seed: int
    minutes: float = 60.0


Stretch = Episode | Hour


@dataclass(frozen=True, slots=True)
class Run:
    """One replay. Gates travel as text, so that every process parses what a file would hold."""

    stretch: Stretch
    policy: str
    """`CCAR` or a name of `POLICIES`."""
    system: System = field(default_factory=System)
    gate_text: str = field(default="", repr=False)
    """Empty: no gate."""
    priced: bool = True


def play(run: Run) -> Log:
    """The log of a replay."""
    return Replay(workload_of(run.stretch), run.system, policy_of(run)).run()


def policy_of(run: Run) -> Policy:
    """The policy of a run."""
    return Ccar(gate_of(run.gate_text), run.priced) if run.policy == CCAR else POLICIES[run.policy]


@lru_cache(maxsize=8)
def workload_of(stretch: Stretch) -> Workload:
    """The sessions of a stretch."""
    if isinstance(stretch, Episode):
        return generate(stretch)
    return mooncake(stretch.first_hour, stretch.seed, stretch.minutes)


@lru_cache(maxsize=8)
def gate_of(text: str) -> Gate:
    """The gate of a text."""
    return parse_gate(text) if text else OFF
