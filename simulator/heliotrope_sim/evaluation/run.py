"""One evaluation from start to end."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import REQUESTS
from heliotrope_sim.evaluation.buckets import bucket_scores
from heliotrope_sim.evaluation.drift import NEAR_STEADY
from heliotrope_sim.evaluation.drift_study import drift_study
from heliotrope_sim.evaluation.fleet import swept_endpoints
from heliotrope_sim.evaluation.floor import floors
from heliotrope_sim.evaluation.generate import capacities, generate, plans
from heliotrope_sim.evaluation.held_out import Answers, masks, phase_floor, request_scores, step_scores
from heliotrope_sim.evaluation.lengths import halves, load_lengths, shuffled
from heliotrope_sim.evaluation.measured_study import measured_errors
from heliotrope_sim.evaluation.regimes import HELD_OUT_LOADS, TRAINING_LOADS, Regime
from heliotrope_sim.evaluation.report import Evaluation, Section
from heliotrope_sim.evaluation.rows import Requests, Steps, requests_of, steps_of
from heliotrope_sim.evaluation.scores import Score
from heliotrope_sim.evaluation.speed import microseconds_per_64_candidates
from heliotrope_sim.evaluation.studies import ablations, leave_one_hardware_out, slices
from heliotrope_sim.evaluation.training import models_of
from heliotrope_sim.evaluation.view import ViewFactory

MAX_STEPS = 20_000
"""Steps to train on: as many as a trainer's window holds."""
Train = Callable[[Requests, Steps, int], LearnedModels]


@dataclass(frozen=True, slots=True)
class Settings:
    """How large an evaluation is."""

    seed: int = 7
    quick: bool = False
    training_loads: tuple[float, ...] = TRAINING_LOADS
    held_out_loads: tuple[float, ...] = HELD_OUT_LOADS
    training_requests: int = 250
    """Of each run; so for the next one."""
    twin_every: int = 25
    drift_requests: int = 1_500
    """In each stream after a change."""
    held_out_requests: int = 150
    profiles: tuple[str, ...] | None = None
    """None: all that ship."""
    bucket_requests: int | None = None
    """Recorded requests whose answers' lengths are predicted; None: all."""
    plots: bool = False
    studies: bool = True
    """Ablations, unseen hardware, drift and published measurements as well."""

    @classmethod
    def of(cls, seed: int, *, quick: bool, plots: bool = False) -> "Settings":
        """The usual sizes."""
        if not quick:
            return cls(seed=seed, plots=plots)
        return cls(
            seed=seed,
            quick=True,
            plots=plots,
            training_loads=(0.1, 0.4, 0.7, 0.9, 1.2),
            held_out_loads=(0.35, 0.65, 0.95, 1.3),
            training_requests=100,
            held_out_requests=70,
            twin_every=45,
            drift_requests=600,
        )


def evaluate(settings: Settings, view: ViewFactory, console: Console, train: Train = models_of) -> Evaluation:
    """Generate, train, and score on what training has not seen.

    Args:
        settings: sizes and seed.
        view: the picker's own bookkeeping.
        console: gets a progress bar.
        train: makes the models; others than the picker's own show what the evaluation says of broken ones.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        return _Evaluator(settings, view, progress, train).run()


class _Evaluator:
    def __init__(self, settings: Settings, view: ViewFactory, progress: Progress, train: Train) -> None:
        self._settings = settings
        self._view = view
        self._progress = progress
        self._train = train

    def run(self) -> Evaluation:
        seed = self._settings.seed
        training, held_out = self._runs()
        models = self._train(*training, seed)
        learned, analytic = Answers.of(models, held_out[0]), Answers.analytic(held_out[0])
        scores = request_scores(learned, seed)
        scores |= {f"analytic_{key}": score for key, score in request_scores(analytic, seed).items() if score.n}
        scores["step_energy_mape"], scores["analytic_step_energy_mape"] = step_scores(models, held_out[1], seed)
        below = masks(held_out[0])[Regime.BELOW]
        scores["ttft_phase_floor"] = phase_floor(held_out[0], below, seed)
        scores["ttft_floor"], scores["tpot_floor"], scores["request_energy_floor"] = self._floors
        bucket_figures, bucket_numbers, bucket_section = self._buckets()
        scores |= bucket_figures
        numbers = dict(bucket_numbers)
        numbers["us_per_64_candidates"] = microseconds_per_64_candidates(models, held_out[0].rows, seed)
        sections = [slices(learned, analytic, seed), bucket_section]
        if self._settings.studies:
            sections += self._studies(training, held_out)
            drift_section, drift_numbers = self._drift(training[0])
            numbers |= drift_numbers
            sections.append(drift_section)
            with self._stage("published measurements") as done:
                sections.append(measured_errors(seed, done))
        return Evaluation(
            seed=seed,
            quick=self._settings.quick,
            scores=scores,
            numbers=numbers,
            reasons=reasons(scores, numbers, models),
            sections=tuple(sections),
            machine=machine(),
            page=self._page(learned, analytic),
        )

    def _page(self, learned: Answers, analytic: Answers) -> str:
        if not self._settings.plots:
            return ""
        from heliotrope_sim.evaluation.plots import scatter_page

        return scatter_page("Heliotrope: predicted against true", learned, analytic)

    def _runs(self) -> tuple[tuple[Requests, Steps], tuple[Requests, Steps]]:
        s = self._settings
        endpoints = self._endpoints = swept_endpoints(s.seed, names=s.profiles)
        seen, unseen = halves(load_lengths())
        capacity = self._capacity = capacities(endpoints, s.seed)
        train = plans(endpoints, capacity, s.training_loads, count=s.training_requests, seed=s.seed, stream=0)
        test = plans(
            endpoints,
            capacity,
            s.held_out_loads,
            count=s.held_out_requests,
            seed=s.seed,
            stream=1,
            twin_every=s.twin_every,
        )
        task = self._progress.add_task("load sweeps", total=len(train) + len(test))
        training = generate(train, seen, self._view, lambda: self._progress.advance(task))
        held_out = generate(test, unseen, self._view, lambda: self._progress.advance(task))
        with_twins = [(i, each) for i, run in enumerate(held_out) for each in run.twins]
        self._floors = floors([each for _, each in with_twins], [i for i, _ in with_twins], s.seed)
        steps = steps_of(training)
        rng = np.random.default_rng([s.seed, 3])
        steps = steps.where(rng.random(len(steps)) < MAX_STEPS / len(steps))
        return (requests_of(training), steps), (requests_of(held_out), steps_of(held_out))

    def _studies(self, training: tuple[Requests, Steps], held_out: tuple[Requests, Steps]) -> list[Section]:
        seed = self._settings.seed
        with self._stage("ablations, unseen hardware") as done:
            return [
                ablations(training, held_out, seed, done),
                leave_one_hardware_out(training, held_out, seed, done),
            ]

    def _drift(self, training: Requests) -> tuple[Section, dict[str, float]]:
        with self._stage("drift") as done:
            return drift_study(
                training,
                self._endpoints,
                self._capacity,
                self._view,
                self._settings.seed,
                self._settings.drift_requests,
                done,
            )

    @contextmanager
    def _stage(self, name: str) -> Iterator[Callable[[], None]]:
        """A line of progress for as long as something runs."""
        task = self._progress.add_task(name, total=None)
        yield lambda: self._progress.advance(task)
        done = self._progress.tasks[task].completed
        self._progress.update(task, total=done, completed=done)

    def _buckets(self) -> tuple[dict[str, Score], dict[str, float], Section]:
        seed = self._settings.seed
        stream = shuffled(load_lengths(), np.random.default_rng([seed, 4]))[: self._settings.bucket_requests]
        warm_up = len(stream) // 2
        rows = []
        streams = {"all": stream} | {
            name: [r for r in stream if r.application == name] for name in dict.fromkeys(r.application for r in stream)
        }
        known = bucket_scores(stream, seed, warm_up=warm_up, with_application=True)
        for name, requests in streams.items():
            for told in (True, False) if name == "all" else (True,):
                found = bucket_scores(requests, seed, warm_up=len(requests) // 2, with_application=told)
                label = name if told else "all, application unknown"
                rows.append((label, found.exact, found.base_rate, found.within_one, found.base_within_one))
        section = Section(
            "buckets",
            "Length buckets, learned online (second half of the recorded requests)",
            ("application", "exact", "base rate", "within one", "best constant"),
            tuple(rows),
        )
        numbers = {"bucket_base_rate": known.base_rate, "bucket_base_within_one": known.base_within_one}
        return {"bucket_exact": known.exact, "bucket_within_one": known.within_one}, numbers, section


def reasons(scores: Mapping[str, Score], numbers: Mapping[str, float], models: LearnedModels) -> dict[str, str]:
    """Why a goal may be out of reach, in numbers of the same run."""
    ttft, tpot, joules = (scores[key].value for key in ("ttft_floor", "tpot_floor", "request_energy_floor"))
    alone, shared = scores["ttft_mape_alone"].value, scores["ttft_mape_shared"].value
    covered = [model.scores.coverage for model in models.current.models.values() if model.target in REQUESTS.targets]
    calibrated = float(np.mean(covered)) if covered else float("nan")
    settled = numbers.get("drift_settled_requests", float("nan"))
    return {
        "ttft_mape": (
            f"where another picker sends requests too, nothing but scrapes tells of theirs: the error is {shared:.1%} "
            f"there and {alone:.1%} elsewhere; who knows an engine's whole state errs by {ttft:.1%}, because of what "
            f"arrives after the request"
        ),
        "tpot_mape": (
            f"prefills that arrive while a request decodes stall it: run again from the same state with another "
            f"future, its TPOT spreads so that the best single answer errs by {tpot:.1%}"
        ),
        "request_energy_mape": (
            f"who joins and leaves the batch later decides how many share its steps: run again from the same state "
            f"with another future, the best single answer errs by {joules:.1%}"
        ),
        "coverage_90": (
            f"quantiles are calibrated on requests of the runs that were trained on, and cover {calibrated:.1%} of "
            f"others of those runs; the runs here have other loads and other requests"
        ),
        "drift_requests": (
            f"where the error of a settled model is itself above 10 %, none falls below; within {NEAR_STEADY:g} times "
            f"its settled error is every target after {settled:.0f} requests"
        ),
    }


def machine() -> str:
    """What an evaluation ran on, in one line."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
