"""The experiment from start to end, as `heliotrope reproduce context-is-not-free --quick` runs it."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from heliotrope_cli.main import main
from heliotrope_sim.reproduce.context.gates import train
from heliotrope_sim.reproduce.context.overall import PAPER_SAVINGS
from heliotrope_sim.reproduce.context.plan import plan
from heliotrope_sim.reproduce.context.sensitivity import SETTINGS
from heliotrope_sim.reproduce.context.tasks import Stretch
from heliotrope_sim.reproduce.context.workload import Episode
from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.workers import workers

EVIDENCE = {
    *(f"saving/{where}/{baseline}" for where in ("sessions", "mooncake") for baseline in PAPER_SAVINGS),
    *(f"turns/sessions/over-{turns}" for turns in (5, 10, 20, 30)),
    "ablation/without-pricing",
    "ablation/without-gate",
    "ablation/without-gate-ttft",
    "recomputed/fair-carbon",
    "recomputed/ccar",
    "break-even/ratio-at-4k-history",
    "break-even/history-at-ratio-0.5",
    "miss/extra-carbon-2-4K",
    "miss/extra-carbon-4-8K",
    "miss/extra-carbon->8K",
}
"""Rows that every run has."""


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_run_has_every_row_and_the_shape_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parts that a run before has finished would be taken as they are.
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "deep" / "rows.json"
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "context-is-not-free", "--quick", f"--json={file}", f"--out={tmp_path}"])
    assert not ended.value.code
    rows = {row["id"]: row for row in json.loads(file.read_text())}
    assert rows.keys() >= EVIDENCE
    assert all(row["holds"] in (True, False, None) for row in rows.values())
    must = {id_ for id_ in EVIDENCE if id_.startswith(("saving/sessions/", "break-even/"))}
    must |= {"recomputed/ccar", "ablation/without-pricing", "turns/sessions/over-5"}
    assert {id_: rows[id_]["holds"] for id_ in must} == dict.fromkeys(must, True)
    assert json.loads((tmp_path / "rows.json").read_text()) == list(rows.values())
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "figures hold" in capsys.readouterr().out


def test_compared_sessions_are_in_no_training_and_no_validation() -> None:
    for quick in (True, False):
        sizes = plan(Settings(seed=7, quick=quick))
        stretches = (*sizes.compared, *sizes.training, *sizes.held_out)
        assert all(isinstance(s, Episode) for s in stretches)
        assert len({s.seed for s in stretches if isinstance(s, Episode)}) == len(stretches)
        assert len({s.first_hour // 24 for s in stretches}) == len(stretches)


def test_the_grids_share_the_default() -> None:
    assert len(SETTINGS) == len(set(SETTINGS)) == 9 + 9 - 1


@pytest.mark.slow
def test_a_gate_keeps_the_threshold_that_emits_least_on_held_out_sessions() -> None:
    training: tuple[Stretch, ...] = (Episode(450, 2.0, 120.0, 11),)
    held_out: tuple[Stretch, ...] = (Episode(1000, 1.0, 120.0, 12),)
    with workers(1, quiet()) as pool:
        trained = train(training, held_out, 1.0, 7, pool, priced=False)
        again = train(training, held_out, 1.0, 7, pool, priced=False)
    assert trained.gate.digest == again.gate.digest
    best = min(trained.change.values(), key=lambda found: found.estimate).estimate
    assert trained.gate.saving == pytest.approx(max(-best, 0.0))
    assert trained.gate.on == (best < 0.0)
    assert 0.0 < trained.staying_pays < 1.0


def test_without_enough_switches_there_is_no_gate() -> None:
    few: tuple[Stretch, ...] = (Episode(450, 0.1, 20.0, 11),)
    with workers(1, quiet()) as pool:
        trained = train(few, few, 1.0, 7, pool)
    assert not trained.gate.on
    assert trained.change == {}
