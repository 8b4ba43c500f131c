"""Trains gates on some sessions, chooses their threshold on others; policies are compared on neither."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heliotrope.cache.gate import Gate
from heliotrope.cache.gate_training import THRESHOLDS, train_gate
from heliotrope.carbon.bootstrap import Interval, block_bootstrap, relative_change
from heliotrope_sim.reproduce.context.branches import Collect, collect
from heliotrope_sim.reproduce.context.measures import RESAMPLES, Arm, Ground
from heliotrope_sim.reproduce.context.policies import CCAR
from heliotrope_sim.reproduce.context.tasks import Run, Stretch, play
from heliotrope_sim.reproduce.workers import Workers


@dataclass(frozen=True, slots=True)
class Trained:
    """A gate, and what each threshold would have emitted over the held-out sessions against no gate."""

    gate: Gate
    change: dict[float, Interval]
    """Of emissions, by δ; infinity is left out, because its change is 0."""
    staying_pays: float
    """Share of the branched switches at which staying emitted less over two turns."""


def train(
    training: Sequence[Stretch],
    held_out: Sequence[Stretch],
    share: float,
    seed: int,
    workers: Workers,
    *,
    priced: bool = True,
) -> Trained:
    """A gate whose threshold emits least over the held-out sessions; +∞, no gate, is among those to choose from.

    Args:
        training: to branch on.
        held_out: to choose on.
        share: of the switches that are branched.
        seed: of the lots and of LightGBM.
        workers: to run on.
        priced: whether the proposal charges recomputation.
    """
    name = "priced" if priced else "not priced"
    tasks = [Collect(s, share, seed, priced) for s in training]
    switches = [each for found in workers.map(f"branching replays, {name}", collect, tasks) for each in found]
    staying_pays = float(np.mean([s.advantage > 0.0 for s in switches])) if switches else math.nan
    gate = train_gate(switches, seed)
    if gate.forest is None:
        return Trained(gate, {}, staying_pays)
    runs = [
        Run(s, CCAR, gate_text=replace(gate, threshold=delta).to_text(), priced=priced)
        for delta in THRESHOLDS
        for s in held_out
    ]
    logs = workers.map(f"threshold of the gate, {name}", play, runs)
    ground = Ground.of(held_out)
    n = len(held_out)
    arms = {delta: Arm.of(logs[i * n : (i + 1) * n]) for i, delta in enumerate(THRESHOLDS)}
    grams = {delta: ground.by_session(arm.grams_co2e) for delta, arm in arms.items()}
    without = grams[math.inf]
    change = {
        delta: block_bootstrap(np.stack([each, without], axis=1), relative_change, resamples=RESAMPLES, seed=seed)
        for delta, each in grams.items()
        if math.isfinite(delta)
    }
    best = min(THRESHOLDS, key=lambda delta: (float(grams[delta].sum()), -delta))
    saving = 1.0 - float(grams[best].sum() / without.sum())
    return Trained(replace(gate, threshold=best, validated_on=ground.sessions, saving=saving), change, staying_pays)
