"""Answers: what is run for them, what they judge, and that numbers follow from runs."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from heliotrope.errors import InvalidInputError
from heliotrope.goodput import Spent
from heliotrope.predict.targets import Target
from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.roadmap import prediction, questions, tables
from heliotrope_sim.reproduce.roadmap.arms import ABLATIONS, BASELINES, FULL, KV, SESSIONS
from heliotrope_sim.reproduce.roadmap.experiment import SICP
from heliotrope_sim.reproduce.roadmap.measures import Measured, change, vector
from heliotrope_sim.reproduce.roadmap.studies import (
    KV_WORKLOADS,
    SESSION_WORKLOADS,
    Found,
    Sizes,
    kv_run,
    matrix_runs,
    runs,
    session_run,
)
from heliotrope_sim.reproduce.roadmap.tasks import Run, play
from heliotrope_sim.reproduce.workers import workers

TINY = Sizes(1, 16, (0.5,), (0.2, 0.8))


def found(tasks: list[Run]) -> Found:
    return Found({task: play(task) for task in tasks}, TINY, 7, quick=True)


@cache
def transfers() -> Found:
    return found([kv_run(TINY)(arm, w, 700) for w in KV_WORKLOADS for arm in KV.values()])


def test_every_question_and_ablation_has_its_runs_and_equal_ones_are_made_once() -> None:
    everything = runs(Settings(quick=True))
    assert len(everything) == len(set(everything))
    for part in SICP.parts:
        own = runs(Settings(quick=True, figures=(part,)))
        assert own
        assert set(own) <= set(everything)
        assert len(own) < len(everything)
    assert {run.arm for run in everything} >= {*BASELINES, *KV.values(), *ABLATIONS.values(), FULL}
    assert {run.workload for run in everything} >= {*KV_WORKLOADS, *SESSION_WORKLOADS, "batch", "multimodal"}


def test_cache_transfers_are_judged_by_the_crossovers_of_links() -> None:
    rows = {row.id: row for row in questions.transfer_rows(transfers())}
    assert rows["rq2"].holds is True
    lengths = [rows[f"rq2/break-even-{kind}-0"].ours for kind in ("rack", "region", "wan")]
    assert lengths == sorted(lengths, key=float)
    assert rows["rq2"].ours == rows["rq2/break-even-region-0"].ours
    assert rows["rq2/hits-recompute"].ours == 0.0
    hits = rows["rq2/hits-owner-affinity"].ours
    assert isinstance(hits, float)
    assert hits > 0.0


def test_a_question_differs_where_the_hypothesis_does_not_hold() -> None:
    good = session_run(TINY)(SESSIONS["naive"], "chat", 700)
    base = play(good)
    measured = {}
    for workload in SESSION_WORKLOADS:
        for name, arm in SESSIONS.items():
            dearer = 1.5 if name == "naive" else 1.0
            measured[session_run(TINY)(arm, workload, 700)] = replace(base, working_grams=dearer)
    rows = {row.id: row for row in questions.session_rows(Found(measured, TINY, 7, quick=True))}
    assert rows["rq4"].ours == pytest.approx(50.0)
    assert rows["rq4"].holds is True
    for run in list(measured):
        measured[run] = replace(base, working_grams=1.0)
    rows = {row.id: row for row in questions.session_rows(Found(measured, TINY, 7, quick=True))}
    assert rows["rq4"].holds is False


def run_of(tokens: float, grams: float) -> Measured:
    base = next(iter(transfers().measured.values()))
    return replace(base, tokens=tokens, spent=Spent(10.0, grams, 0.0, float("nan"), 2.0))


def test_changes_are_per_token_of_goodput_and_vectors_sum_before_they_divide() -> None:
    a, b = [run_of(100.0, 2.0)] * 6, [run_of(50.0, 2.0)] * 6
    interval = change(a, b, "grams", 1)
    assert interval.estimate == pytest.approx(-0.5)
    assert interval.known
    together = vector([run_of(100.0, 2.0), run_of(0.0, 6.0)])
    assert together.tokens_per_gram == pytest.approx(12.5)
    assert np.isnan(together.tokens_per_liter)


@pytest.mark.slow
def test_prediction_learns_on_some_runs_and_is_scored_on_others() -> None:
    tasks = [task for task in matrix_runs(TINY, 7) if task.workload in ("chat", "code", "rag")]
    measured = {task: play(replace(task, requests=40)) for task in tasks}
    for task in matrix_runs(TINY, 7):
        measured.setdefault(task, replace(run_of(0.0, 0.0), features=np.zeros((0, 0))))
    predicted = prediction.predict(Found(measured, TINY, 7, quick=True))
    scores = predicted.scores["with hardware and power"]
    assert 0.0 < scores[Target.REQUEST_ENERGY].value < 1.0
    rows = {row.id: row for row in prediction.rows(predicted)}
    assert rows["rq1"].ours == pytest.approx(100.0 * scores[Target.REQUEST_ENERGY].value)
    assert rows["rq1"].holds is not None


def test_dvfs_is_said_to_be_missing_and_no_number_is_made_up() -> None:
    fake: Any = Found({}, TINY, 7, quick=True)
    ablated = [tables.ablation_run(TINY)(arm, w, 700) for w in ("chat", "rag") for arm in (FULL, *ABLATIONS.values())]
    fake = replace(fake, measured=dict.fromkeys(ablated, run_of(10.0, 1.0)))
    row = {row.id: row for row in tables.ablation_rows(fake)}["ablation/dvfs"]
    assert row.holds is None
    assert row.ours == "not run"


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="rq1, rq2"):
        SICP.check(Settings(figures=("rq9",)))


@pytest.mark.slow
def test_one_question_from_settings_to_report() -> None:
    with workers(1, Console(quiet=True)) as pool:
        report = SICP.run(Settings(quick=True, figures=("rq6",)), pool).only(("rq6",))
    assert report.rows[0].id == "rq6"
    assert report.rows[0].holds is True
    assert [picture.id for picture in report.pictures] == ["rq6/plot"]
    assert "RQ6" in report.to_html()
