from pathlib import Path

from tests.unit.epp.ledger.builders import NOW, clock, drew, finished, metered, settings, store

from heliotrope_epp.labels import OTHER
from heliotrope_epp.ledger.ledger import Ledger
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.rows import Line


def ledger(folder: Path, **changes: object) -> Ledger:
    return Ledger(Places(store()), settings(folder, **changes), clock())


def test_equal_keys_become_one_row_until_they_are_taken(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for _ in range(3):
        book.measured(finished(), drew(millijoules=5))
    batch = book.take()
    (row,) = (amounts for key, amounts in batch.items() if key.line is Line.REQUEST)
    assert (row.requests, row.millijoules) == (3, 15)
    assert book.take() == {}


def test_tenants_models_and_classes_beyond_the_limit_are_other(tmp_path: Path) -> None:
    book = ledger(tmp_path, max_labels=2)
    for i in range(5):
        book.measured(finished(tenant=f"t{i}", model=f"m{i}", request_class=f"c{i}"), drew())
    keys = [key for key in book.take() if key.line is Line.REQUEST]
    assert {key.tenant for key in keys} == {"t0", "t1", OTHER}
    assert {key.model for key in keys} == {"m0", "m1", OTHER}
    assert {key.request_class for key in keys} == {"c0", "c1", OTHER}


def test_rows_beyond_the_limit_are_unrecorded_and_their_energy_is_kept(tmp_path: Path) -> None:
    book = ledger(tmp_path, max_rows=10)
    booked = 0
    for slot in range(100):
        start = NOW + 300.0 * slot
        book.metered(metered(start_unix_s=start, end_unix_s=start + 2.0))
        book.measured(
            finished(tenant=f"t{slot}", ended_unix_s=start + 2.0),
            drew(start_unix_s=start, end_unix_s=start + 2.0),
        )
        booked += 5_000_000
    assert book.folded > 0
    batch = book.take()
    assert len(batch) < 60  # the ten, and one a region, hour and boundary
    assert sum(amounts.millijoules for amounts in batch.values()) == booked
    assert sum(amounts.requests for amounts in batch.values()) == 100
    assert any(key.line is Line.UNRECORDED and key.slot_unix_s % 3_600 == 0 for key in batch)


def test_waiting_is_told_from_the_first_entry_on(tmp_path: Path) -> None:
    now = [0.0]
    book = Ledger(Places(store()), settings(tmp_path), clock(monotonic=lambda: now[0]))
    assert book.waiting_seconds == 0.0
    book.metered(metered())
    now[0] = 3.0
    book.metered(metered())
    assert book.waiting_seconds == 3.0
    book.take()
    assert book.waiting_seconds == 0.0
