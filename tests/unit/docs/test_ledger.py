"""docs/ledger.md and examples/ledger.sql against what the code does."""

import re
from pathlib import Path

import duckdb
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.epp.ledger.builders import clock, drew, finished, metered, settings, store

from heliotrope_epp.ledger.columns import KEYS, OLDEST, SLOT_START, SUMS
from heliotrope_epp.ledger.counters import EnergyCounters, LedgerCollector
from heliotrope_epp.ledger.ledger import Ledger
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.rows import Line
from heliotrope_epp.ledger.writer import Health, LedgerWriter

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "ledger.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_column_is_described_with_its_type() -> None:
    described = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Columns"), re.MULTILINE))
    assert described == {SLOT_START: "TIMESTAMP", **KEYS, **SUMS, OLDEST: "DOUBLE"}


def test_every_line_is_described() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("How it adds up"), re.MULTILINE)) == set(Line)


def test_every_metric_is_described_and_no_other() -> None:
    registry = CollectorRegistry()
    EnergyCounters(registry, Places(store()), clock())
    energy = {f"{family.name}_total" for family in registry.collect()}
    assert set(re.findall(r"`(heliotrope_\w+_total)`", section("As metrics"))) == energy
    told = set(re.findall(r"`(?:heliotrope_ledger|…)_(\w+)`", section("What is on the disk, and what a crash costs")))
    collector = LedgerCollector(Health(), folded=lambda: 0, unwritten_seconds=lambda: 0.0)
    known = {s.name.removeprefix("heliotrope_ledger_") for f in collector.collect() for s in f.samples}
    assert told <= known


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    book = Ledger(Places(store()), settings(tmp_path), clock())
    writer = LedgerWriter(book, settings(tmp_path), clock())
    writer.start()
    book.metered(metered())
    book.measured(finished(), drew())
    book.measured(finished(), None)
    writer.stop()
    return tmp_path


def test_the_example_answers(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ledger)
    answers = []
    with duckdb.connect() as connection:
        text = (REPOSITORY / "examples" / "ledger.sql").read_text(encoding="utf-8")
        for statement in text.split(";\n"):
            if statement.strip():
                answers.append(connection.execute(statement).fetchall())
    _, tenants, lines, per_token, unpriced = answers
    assert [row[1] for row in tenants] == ["t", "t"]
    assert sum(row[2] for row in lines) == 5_000.0
    assert per_token == [("llm/v", "policy", 720.0)]
    assert unpriced == [("es", "no energy counter", 1, None)]


def test_the_query_of_the_page_answers(ledger: Path) -> None:
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    with duckdb.connect() as connection:
        rows = connection.execute(query.replace("/var/lib/heliotrope/ledger", str(ledger))).fetchall()
    assert rows[0][1:4] == ("t", "average", "lifecycle")
