"""Scenarios that run: what comes out is what was simulated, and it is told in full."""

import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.unit.sim.scenario.conftest import Changed

from heliotrope.errors import InvalidInputError
from heliotrope_sim.fleet.results import Ending
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.reproduce.workers import Workers, workers
from heliotrope_sim.scenario.document import to_json
from heliotrope_sim.scenario.outcome import saving
from heliotrope_sim.scenario.page import page
from heliotrope_sim.scenario.study import Cell, Run, Study, play, prepare, run
from heliotrope_sim.scenario.summary import summarise
from heliotrope_sim.scenario.table import plan, show

ENGINE = "llama-3.1-8b-a100-40gb"


def cells_of(study: Study, *, traced: bool = False) -> tuple[Cell, ...]:
    with workers(1, Console(quiet=True)) as pool:
        assert isinstance(pool, Workers)
        return run(study, pool, traced=traced)


def test_greedy_moves_load_to_the_clean_grid_and_the_saving_is_of_the_grams(changed: Changed) -> None:
    study = changed.study()
    cells = cells_of(study)
    blind, greedy = (cell.outcome for cell in cells)
    assert greedy.site_requests["spain"] < blind.site_requests["spain"]
    assert greedy.grams < blind.grams
    summary = summarise(study, cells)
    assert summary.lines[1].saving == pytest.approx(1.0 - greedy.grams / blind.grams)
    assert blind.requests == blind.served == sum(blind.site_requests.values()) == len(study.built.workload)


def test_what_is_reported_is_what_the_simulator_gives(changed: Changed) -> None:
    study = changed.study()
    built = study.built
    arm = built.arms[1]
    results = simulate(built.topology, replace(built.workload, classes=arm.classes), arm.settings)
    told = play(Run(study.scenario, study.files, 1, quick=False, traced=False))
    assert told.digest == results.trace_hash()
    assert told.grams == pytest.approx(results.grams().sum())
    assert told.joules["total"] == pytest.approx(results.energy_joules.sum())
    assert sum(told.grams_by_site.values()) == pytest.approx(told.grams)
    assert sum(v for k, v in told.joules.items() if k != "total") == pytest.approx(told.joules["total"])
    assert told.ttft_seconds["p95"] == np.quantile(results.ttft_seconds, 0.95)
    assert told.endings["served"] == int((results.ending == Ending.SERVED).sum())
    assert sum(map(sum, told.over_time.requests)) == told.requests


def test_arms_are_judged_by_one_promise_whatever_they_aim_at(changed: Changed) -> None:
    policies = [
        {"name": "strict", "scheduler": "RoundRobin", "slo": {"ttft_seconds": 1e-3, "tpot_seconds": 1e-3}},
        {"name": "plain", "scheduler": "RoundRobin"},
    ]
    strict, plain = (cell.outcome for cell in cells_of(changed.study(policies=policies)))
    assert strict.violation == plain.violation == 0.0


def test_no_feasible_region_falls_back_to_the_least_late_one_and_counts_as_late(changed: Changed) -> None:
    study = changed.study(slo={"ttft_seconds": 1e-4, "tpot_seconds": 1e-4})
    for cell in cells_of(study):
        assert cell.outcome.served == cell.outcome.requests
        assert cell.outcome.violation == 1.0


def test_unknown_intensity_is_no_zero(changed: Changed) -> None:
    regions = changed.data()["regions"]
    del regions[1]["intensity"]
    study = changed.study(regions=regions)
    cells = cells_of(study)
    for cell in cells:
        assert math.isnan(cell.outcome.grams)
        assert cell.outcome.joules_without_intensity > 0.0
        assert cell.outcome.without_carbon == cell.outcome.windows
    document = json.loads(to_json(study, cells, summarise(study, cells)))
    assert document["runs"][0]["grams"] is None
    assert document["summary"][1]["saving"] is None
    assert document["stated"]["regions"][1]["intensity_g_per_kwh"] is None


def test_largest_shares_are_kept(changed: Changed) -> None:
    workload = {"kind": "poisson", "rate_per_second": 40.0, "duration_seconds": 4.0}
    policies = [{"name": "greedy", "scheduler": "Greedy", "largest_share_percent": 60, "projection": True}]
    outcome = cells_of(changed.study(policies=policies, workload=workload))[0].outcome
    share = outcome.site_requests["norway"] / outcome.requests
    assert 0.5 < share <= 0.66


def test_a_regions_own_share_holds_for_every_policy(changed: Changed) -> None:
    regions = changed.data()["regions"]
    regions[0]["largest_share_percent"] = 30
    workload = {"kind": "poisson", "rate_per_second": 15.0, "duration_seconds": 10.0}
    policies = [{"name": "greedy", "scheduler": "Greedy"}, {"name": "f", "scheduler": "Facility"}]
    for cell in cells_of(changed.study(policies=policies, workload=workload, regions=regions)):
        assert cell.outcome.site_requests["norway"] / cell.outcome.requests <= 0.36


def test_data_residency_of_a_class_holds(changed: Changed) -> None:
    classes = [{"name": "stays", "allowed_regions": ["spain"]}, {"name": "moves", "share": 0.0}]
    workload = {"kind": "poisson", "rate_per_second": 5.0, "duration_seconds": 4.0, "classes": classes}
    outcome = cells_of(changed.study(workload=workload))[1].outcome
    assert outcome.site_requests["norway"] == 0


@pytest.mark.parametrize(
    "workload",
    [
        {"kind": "azure", "rate_per_second": 20.0, "duration_seconds": 5.0, "expected_output": "mean"},
        {"kind": "mooncake", "requests": 20, "speed": 10.0, "expected_output": "unknown"},
        {"kind": "diurnal", "requests": 200.0, "hours": 1, "columns": {"spain": "eu-west-3"}},
    ],
)
def test_recorded_workloads_run(workload: dict[str, Any], changed: Changed) -> None:
    study = changed.study(workload=workload, policies=[{"name": "p", "scheduler": "LeastLoaded"}])
    outcome = cells_of(study)[0].outcome
    assert outcome.requests == len(study.built.workload) > 10
    assert outcome.served > 0


def test_files_for_recorded_workloads_may_be_the_users_own(changed: Changed) -> None:
    changed.file(
        "azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:47,9,9\n"
    )
    changed.file("hours.csv", "timestamp,datetime,a\n0,x,5\n3600,x,7\n")
    built = changed.study(workload={"kind": "azure", "file": "azure.csv"}).built
    assert built.workload.prompt_tokens.tolist() == [374, 9]
    diurnal = {"kind": "diurnal", "file": "hours.csv", "requests": 100.0, "hours": 2, "columns": {"norway": "a"}}
    assert (changed.study(workload=diurnal).built.workload.origin == 0).all()


def test_a_trace_of_ones_own_keeps_sessions_classes_regions_and_prefixes(changed: Changed) -> None:
    rows = [
        {"arrival_seconds": 5.0, "prompt_tokens": 40, "output_tokens": 3, "session": "a", "block_ids": [7, 8]},
        {
            "arrival_seconds": 6.0,
            "prompt_tokens": 70,
            "output_tokens": 3,
            "session": "a",
            "class": "b",
            "region": "spain",
        },
    ]
    changed.file("t.jsonl", "\n".join(map(json.dumps, rows)))
    classes = [{"name": "a"}, {"name": "b"}]
    trace = {"kind": "trace", "file": "t.jsonl", "speed": 2.0, "classes": classes, "block_tokens": 32}
    made = changed.study(workload=trace).built.workload
    assert made.arrival_ns.tolist() == [0, 500_000_000]
    assert made.session.tolist() == [0, 0]
    assert made.class_index.tolist() == [0, 1]
    assert made.origin.tolist() == [0, 1]
    assert made.block_hashes.tolist() == [14, 15]


def test_what_a_trace_names_must_be_there(changed: Changed) -> None:
    head = "arrival_seconds,prompt_tokens,output_tokens,class,region\n"
    for row, says in (
        ("0,1,1,x,\n", "t.csv:2: class 'x' is none of workload.classes: none"),
        ("0,1,1,,mars\n", "t.csv:2: no scheduler is in region 'mars'; there are some in norway, spain"),
    ):
        changed.file("t.csv", head + row)
        with pytest.raises(InvalidInputError) as error:
            changed.study(workload={"kind": "trace", "file": "t.csv"})
        assert str(error.value) == says


def test_a_quick_run_is_the_first_tenth(changed: Changed) -> None:
    whole = changed.study()
    quick = prepare(changed.data(sweep={"seed": [7, 8, 9]}), whole.files, quick=True)
    n = len(quick.built.workload)
    assert 1 <= n < len(whole.built.workload) / 4
    assert np.array_equal(quick.built.workload.arrival_ns, whole.built.workload.arrival_ns[:n])
    assert [point.values["seed"] for point in quick.points] == [7, 9]


@pytest.mark.slow
def test_a_report_says_everything(changed: Changed) -> None:
    study = changed.study(sweep={"seed": [1, 2], "workload.rate_per_second": [3, 6]}, name="<a & b>")
    cells = cells_of(study)
    summary = summarise(study, cells)
    assert len(cells) == 8
    assert len(summary.lines) == 4
    assert all(line.seeds == 2 for line in summary.lines)
    recorded = Console(record=True, width=250, file=io.StringIO())
    show(study, summary, recorded)
    text = recorded.export_text()
    for word in ("average lifecycle", "PUE 1.1", "operational", "modelled", "over 2 seeds", "estimated", "prefill kJ"):
        assert word in text
    html = page(study, cells, summary)
    assert html.count("data:image/png;base64,") == 5
    assert "<a & b>" not in html
    assert "&lt;a &amp; b&gt;" in html
    document = json.loads(to_json(study, cells, summary))
    assert document["version"] == 1
    assert document["runs"][0]["values"] == {"seed": 1, "workload.rate_per_second": 3}
    assert document["summary"][0]["setting"] == {"workload.rate_per_second": 3}
    plan(study, recorded)
    assert "nothing was run" in recorded.export_text()


def test_a_saving_of_nothing_known_is_unknown() -> None:
    assert math.isnan(saving(1.0, 0.0))
    assert math.isnan(saving(math.nan, 1.0))
    assert math.isnan(saving(1.0, math.nan))
    assert saving(1.0, 4.0) == 0.75


def test_traces_are_kept_where_they_are_asked_for(changed: Changed) -> None:
    study = changed.study(sweep={"seed": [1, 2]})
    kept = [cell.outcome.trace for cell in cells_of(study, traced=True)]
    assert [text is not None for text in kept] == [True, True, False, False]
    assert json.loads(kept[0] or "")["traceEvents"]
