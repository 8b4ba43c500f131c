"""What a process that learns shows of itself: the parts that metrics and documents are made from."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from heliotrope.predict.bundle import Bundle
from heliotrope.predict.models import Level
from heliotrope.predict.targets import Target
from heliotrope.unknown import finite_or_none
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.client import TrainerClient
from heliotrope_epp.learning.drift import DriftWatch, worst_levels
from heliotrope_epp.learning.keeper import ModelKeeper
from heliotrope_epp.learning.trainer import Trainer

LAST_TRAININGS = 10
SOURCES = {Level.CURRENT: "learned", Level.PREVIOUS: "previous", Level.ANALYTIC: "analytic"}


@dataclass(slots=True)
class Progress:
    """Of a process that learns."""

    running: bool = False
    """False before the start, and after an end: a defect that ends it is in the log, and models stay as they are."""
    accepted: int = 0
    """Samples since start; so for the next one."""
    refused: Counter[str] = field(default_factory=Counter)
    """By `heliotrope.predict.sample.Refusal`."""
    steps: int = 0
    """Of the accepted samples those of engines' steps."""
    refused_intervals: Counter[str] = field(default_factory=Counter)
    """By `heliotrope_epp.outcomes.energy.NoSteps` or `heliotrope.predict.sample.Refusal`; a trainer sees none."""


@dataclass(frozen=True, slots=True)
class LearningView:
    """The parts of one process; `trainer` where it trains, `client` where it asks a trainer."""

    progress: Progress
    keeper: ModelKeeper
    watch: DriftWatch
    clock: Clock
    trainer: Trainer | None = None
    client: TrainerClient | None = None


def sources(view: LearningView) -> dict[str, str]:
    """Who answers, by target: `learned`, `previous` or `analytic`, of the hardware that has fallen back furthest."""
    levels = worst_levels(view.keeper.holder)
    return {target.value: SOURCES[levels.get(target.value, Level.ANALYTIC)] for target in Target}


def document(view: LearningView) -> dict[str, Any]:
    """Plain data; unknown is None."""
    models = view.keeper.holder.current
    answering = sources(view)
    folder = view.keeper.store.folder
    result: dict[str, Any] = {
        "running": view.progress.running,
        "samples": {
            "accepted": view.progress.accepted,
            "refused": dict(view.progress.refused),
            "steps": view.progress.steps,
            "refused_intervals": dict(view.progress.refused_intervals),
        },
        "models": None if not models.current.created_unix_s else bundle_document(models.current, view.clock.unix()),
        "previous": None if models.previous is None else models.previous.digest,
        "sources": answering,
        "drifted": [
            {"target": target.value, "hardware": hardware, "answers": SOURCES[level]}
            for (target, hardware), level in models.levels.items()
        ],
        "state": {
            "path": None if folder.path is None else str(folder.path),
            "problem": folder.problem,
            "refused_files": dict(view.keeper.store.refused),
        },
    }
    if view.trainer is not None:
        result["windows"] = data_document(view.trainer)
        result["trainings"] = [msgspec.to_builtins(each) for each in list(view.keeper.records)[-LAST_TRAININGS:]]
        result["training_now"] = view.trainer.training_pid is not None
    if view.client is not None:
        result["trainer"] = {
            "problems": dict(view.client.problems),
            "waiting_samples": view.client.waiting,
            "sent_samples": view.client.counts.sent,
        }
    return result


def bundle_document(bundle: Bundle, now_unix_s: float) -> dict[str, Any]:
    """What is known of a set of models; errors and coverage are fractions of held-out samples."""
    return {
        "digest": bundle.digest,
        "created_unix_s": bundle.created_unix_s,
        "age_seconds": max(now_unix_s - bundle.created_unix_s, 0.0),
        "targets": {
            target.value: {
                "trained_on": model.trained_on,
                "held_out_samples": model.scores.samples,
                "mape": finite_or_none(model.scores.mape),
                "analytic_mape": finite_or_none(model.scores.analytic_mape),
                "coverage_90": finite_or_none(model.scores.coverage),
            }
            for target, model in sorted(bundle.models.items())
        },
    }


def data_document(trainer: Trainer) -> dict[str, Any]:
    """Samples and strata by table."""
    strata = trainer.strata
    return {name: {"samples": size, "strata": strata[name]} for name, size in trainer.window_sizes.items()}
