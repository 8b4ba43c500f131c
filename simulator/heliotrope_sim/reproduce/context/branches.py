"""The gate's labels: at a proposed switch the replay is branched, and each choice is played to the session's next turn.

The difference is the session's own emissions over the two turns. Everybody else's turns in between are played as well,
because they evict caches and take places.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from heliotrope.cache.ccar import may_stay
from heliotrope.cache.gate_training import Switch
from heliotrope_sim.reproduce.context.policies import Ccar, gate_features
from heliotrope_sim.reproduce.context.replay import Choice, Log, Replay, View
from heliotrope_sim.reproduce.context.system import System
from heliotrope_sim.reproduce.context.tasks import Stretch, workload_of


@dataclass(frozen=True, slots=True)
class Collect:
    """Which switches of a stretch are branched."""

    stretch: Stretch
    share: float
    """Of all switches that the gate would be asked about, drawn by lot."""
    seed: int
    priced: bool = True
    system: System = field(default_factory=System)


def collect(task: Collect) -> list[Switch]:
    """Replay a stretch without a gate and branch at a share of its switches."""
    workload = workload_of(task.stretch)
    rng = np.random.default_rng([task.seed, 5])
    scratch = Log.empty(len(workload))
    last = workload.last
    found: list[Switch] = []

    def watch(replay: Replay, view: View, choice: Choice) -> None:
        previous = view.session.previous
        if not may_stay(choice.deployment, previous, view.feasible, view.cached_tokens) or rng.random() >= task.share:
            return
        grams = view.grams_co2e if task.priced else view.oblivious_grams
        found.append(
            Switch(
                features=gate_features(workload, view, grams, choice.deployment),
                moved_grams=_two_turns(replay, view, choice.deployment, scratch, last=bool(last[view.row])),
                stayed_grams=_two_turns(replay, view, previous, scratch, last=bool(last[view.row])),
                scale_grams=float(view.grams_co2e[choice.deployment] + view.grams_co2e[previous]),
            )
        )

    Replay(workload, task.system, Ccar(priced=task.priced), watch).run()
    return found


def _two_turns(replay: Replay, view: View, deployment: int, scratch: Log, *, last: bool) -> float:
    twin = replay.branch(scratch)
    twin.dispatch(view, Choice(deployment))
    grams = float(scratch.grams_co2e[view.row])
    if last:
        return grams
    scratch.grams_co2e[view.row + 1] = math.nan
    twin.run(until_row=view.row + 1)
    following = float(scratch.grams_co2e[view.row + 1])
    return grams + following if math.isfinite(following) else grams
