"""`heliotrope status`: tables wide and narrow, JSON, savings from a picker's counters, and what it cannot tell."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.support.upstream import Reply, upstream
from tests.unit.cli.statuses import SAVED, SINCE, node, snapshot, variant
from tests.unit.epp.ledger.test_arms import arms, write

from heliotrope_cli import status_read, status_rows, status_savings, status_text
from heliotrope_cli.main import main
from heliotrope_cli.status_read import PickerText, Snapshot

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[3] / "examples"


def document(found: Snapshot) -> dict[str, Any]:
    return status_rows.document(found, [status_savings.of_picker(each) for each in found.pickers])


def drawn(found: Snapshot, width: int) -> str:
    out = io.StringIO()
    status_text.show(document(found), Console(file=out, width=width, highlight=False))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize(("name", "width"), [("status-wide.txt", 180), ("status-narrow.txt", 80)])
def test_the_page(name: str, width: int) -> None:
    assert drawn(snapshot(), width) == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 80, 119, 120, 250])
def test_no_table_is_wider_than_the_terminal(width: int) -> None:
    text = drawn(replace(snapshot(), pickers=(), problems=(), jobs=()), width)
    assert max(len(line) for line in text.splitlines() if "give --picker" not in line) <= width
    assert "14.2 (19.0)" in " ".join(text.split())


def test_the_json_is_whole_and_unknown_is_null() -> None:
    found = json.loads(json.dumps(document(snapshot()), allow_nan=False))
    assert found["version"] == 1
    assert found["now"] == "2026-03-01T12:20:00Z"
    spain = found["regions"][1]
    assert (spain["freshness"], spain["age_seconds"], spain["baseline_error_g_per_kwh"]) == ("Fresh", 600.0, 19.0)
    assert found["regions"][2]["intensity_g_per_kwh"] is None
    assert found["policies"][0]["signals"]["message"] == "poland is stale"
    assert found["variants"][2]["desired"] is None
    assert found["variants"][0]["clocks"][0]["watts"] == 450
    assert found["waiting_jobs"]["next_planned_start"] == "2026-03-01T15:00:00Z"
    assert found["savings"][1]["joules_change"] is None
    assert found["problems"] == ["Nodes are unknown"]


def test_what_could_not_be_read_is_not_shown_as_none() -> None:
    text = drawn(replace(snapshot(), variants=None, jobs=None, problems=("you need `list`",)), 180)
    assert "Variants\n  unknown, see below\n" in text
    assert "Jobs that wait\n  unknown, see below\n" in text
    assert "Not read\n  you need `list`" in text


def test_nothing_there_is_none() -> None:
    empty = Snapshot(0.0, (), (), (), (), ())
    assert drawn(empty, 180).count("  none\n") == 5


def test_a_namespace_narrows_what_belongs_to_one() -> None:
    found = snapshot().within(["batch"])
    assert (found.variants, found.policies) == ((), ())
    assert len(found.jobs or ()) == 2
    assert len(found.regions or ()) == 3
    assert snapshot().within([]) == snapshot()


def test_an_agent_is_silent_by_the_api_servers_clock_and_not_by_its_nodes() -> None:
    def silent(reported: dict[str, float]) -> list[tuple[float | None, bool | None]]:
        rows = document(replace(snapshot(), reported_unix_s=reported))["node_powers"]
        return [(each["agent_age_seconds"], each["agent_silent"]) for each in rows]

    now = snapshot().now_unix_s
    assert silent({}) == [(40.0, False), (None, None), (720.0, True)]
    assert silent({"gpu-1": now - 200.0, "gpu-3": now - 10.0}) == [(200.0, True), (None, None), (10.0, False)]


def test_an_agent_that_has_ended_is_not_silent() -> None:
    said = {"type": "Applied", "status": "False", "reason": "AgentStopped", "message": "", "lastTransitionTime": SINCE}
    ended = node("gpu-9", {"heartbeatTime": SINCE, "conditions": [said]})
    (row,) = document(replace(snapshot(), node_powers=(ended,)))["node_powers"]
    assert row["agent_silent"] is False
    assert row["agent_age_seconds"] > 3_600.0


def test_the_api_server_keeps_when_the_agent_wrote() -> None:
    entries = [
        {"manager": "heliotrope-operator", "time": "2026-03-01T12:00:01Z"},
        {"manager": "heliotrope-agent", "subresource": "status", "time": "2026-03-01T12:00:00Z"},
    ]
    at = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    assert status_read._reported({"metadata": {"managedFields": entries}}) == at
    assert status_read._reported({"metadata": {"managedFields": entries[:1]}}) is None
    assert status_read._reported({"metadata": {}}) is None
    assert status_read._reported({"metadata": {"managedFields": [entries[1] | {"time": "soon"}]}}) is None


def test_messages_do_not_reach_the_terminal_raw() -> None:
    said = {"type": "Scaled", "status": "False", "reason": "X", "message": "[red]\x1b[2J", "lastTransitionTime": None}
    odd = variant("v", {"conditions": [said | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    text = drawn(replace(snapshot(), variants=(odd,)), 180)
    assert "\x1b" not in text
    assert "[red]" in text


# Savings


def savings(text: str | None, **more: Any) -> dict[str, Any]:
    return status_savings.of_picker(PickerText("p", text, **more))


def test_arms_are_compared_per_request() -> None:
    found = savings(SAVED)
    assert found["evidence"] == "measured"
    assert found["joules_change"] == pytest.approx(-0.2)
    assert found["grams_change"] == pytest.approx(-0.5)
    assert found["signal"] == "average lifecycle"
    assert found["requests"] == {"policy": 9500, "holdout": 500}
    assert "measured against the policy's holdout" in found["says"]


def test_requests_without_a_counter_are_left_out() -> None:
    text = SAVED + 'heliotrope_unmeasured_requests_total{model="n",arm="holdout"} 100\n'
    assert savings(text)["joules_change"] == pytest.approx(80.0 / 125.0 - 1.0)


def test_an_increase_is_said() -> None:
    assert "more energy" in savings(SAVED.replace("760000.0", "1900000.0"))["says"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"holdout"} 500.0', '"holdout"} 99.0', "99 held out and 9,500 steered"),
        ('arm="holdout",signal_type="average"', 'arm="holdout",signal_type="marginal"', "signals of several kinds"),
    ],
)
def test_what_cannot_be_compared_is_unknown(old: str, new: str, says: str) -> None:
    found = savings(SAVED.replace(old, new))
    assert says in found["says"]
    assert found["grams_change"] is None


def test_energy_without_grams_makes_grams_unknown() -> None:
    text = SAVED + 'heliotrope_unpriced_energy_joules_total{line="request",arm="holdout"} 9000\n'
    found = savings(text)
    assert found["grams_change"] is None
    assert found["joules_change"] is not None
    assert "much energy had no fresh signal" in found["says"]


def test_without_a_holdout_savings_are_modelled() -> None:
    text = 'heliotrope_arm_requests_total{arm="policy"} 9500.0\n'
    found = savings(text)
    assert found["evidence"] == "modelled"
    assert found["says"].startswith("savings are modelled: no request was held out")
    assert found["joules_change"] is None


def test_advice_is_modelled() -> None:
    text = "".join(
        f'heliotrope_compared_{what}_total{{arm="unsteered",plan="{plan}"}} {value}\n'
        for what, plan, value in (
            ("joules", "ran", 100),
            ("joules", "advised", 90),
            ("grams_co2e", "ran", 10),
            ("grams_co2e", "advised", 4),
        )
    )
    found = savings(text)
    assert (found["evidence"], found["joules_change"]) == ("modelled", pytest.approx(-0.1))
    assert found["says"].startswith("10.0% less energy, 60.0% less emissions by what the policy advises, modelled: ")


@pytest.mark.parametrize("text", ["", "# HELP x\nx 1\n", 'heliotrope_arm_requests_total{arm="policy"} NaN\n'])
def test_a_picker_without_traffic_says_so(text: str) -> None:
    found = savings(text)
    assert found["evidence"] is None
    assert "no policy has decided" in found["says"]


# The command


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["status", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, " ".join(captured.err.split())


def test_a_folder_a_picker_and_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, arms())
    with upstream(lambda asked: Reply(200, SAVED.encode()) if asked.path == "/metrics" else Reply(404)) as picker:
        code, out, _ = run(
            capsys, f"--folder={EXAMPLES / 'scaling'}", f"--picker={picker.url}", f"--ledger={tmp_path}", "--json"
        )
    found = json.loads(out)
    assert code == 0
    assert found["variants"]
    measured, ledger = found["savings"]
    assert measured["of"] == f"picker {picker.url}"
    assert measured["grams_change"] == pytest.approx(-0.5)
    assert "20.0% saved" in ledger["says"]


def test_a_picker_that_is_away_and_a_ledger_that_is_none_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys, f"--folder={EXAMPLES / 'scaling'}", "--picker=http://127.0.0.1:1", f"--ledger={tmp_path}"
    )
    assert code == 0
    assert "picker http://127.0.0.1:1: unknown: http://127.0.0.1:1 does not answer" in out
    assert f"ledger {tmp_path}: unknown: " in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--folder=/nowhere"], "/nowhere: is not a folder"),
        (["--folder=x", "--kubeconfig=y"], "--folder: give --folder or --kubeconfig, not both"),
        (["--folder={examples}", "--picker=epp:9090"], "--picker: 'epp:9090' is no address such as http://"),
        (["--kubeconfig={nobody}"], "the API server cannot be read: "),
        (["--kubeconfig=/nowhere"], "give a kubeconfig, or run in a pod"),
    ],
)
def test_wrong_use_and_no_cluster_are_one_sentence(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = tmp_path / "kubeconfig"
    nobody.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    given = [each.format(examples=EXAMPLES / "scaling", nobody=nobody) for each in arguments]
    code, _, said = run(capsys, *given)
    assert code == 1
    assert says in said
