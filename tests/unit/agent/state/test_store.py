from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from heliotrope.sealed import sealed
from heliotrope_agent.errors import CorruptStateError, FencedError, NewerStateError, StateError
from heliotrope_agent.state.records import Knob, Levels, Ownership, decoded, encoded
from heliotrope_agent.state.store import COPIES, FORMAT, MAX_BYTES, Store

levels = st.none() | st.integers(1, 1_000_000)
settings = st.builds(Levels, levels, levels, levels)
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)
records = st.builds(
    Ownership,
    uuid=st.text("GPU-0123456789abcdef", min_size=1, max_size=40),
    original=settings,
    set=settings,
    touched=st.frozensets(st.sampled_from(Knob)),
    namespace=names,
    pod=names,
    pod_uid=names,
    since_unix_s=st.floats(0, 4e9),
    boot_id=names,
)


def record(uuid: str = "GPU-a", mhz: int = 810) -> Ownership:
    return Ownership(
        uuid,
        Levels(power_limit_milliwatts=400_000),
        Levels(mhz, None, 300_000),
        frozenset({Knob.SM_CLOCK, Knob.POWER_LIMIT}),
        "serving",
        "decode-0",
        "uid",
        1.0,
        "boot",
    )


@hypothesis_settings(max_examples=40)
@given(st.lists(records, unique_by=lambda each: each.uuid, max_size=5), st.integers(0, 10**9))
def test_what_is_written_is_read(written: list[Ownership], sequence: int) -> None:
    read, number = decoded(encoded(written, sequence))
    assert read == {each.uuid: each for each in written}
    assert number == sequence


def test_nothing_was_ever_changed_where_there_is_no_file(tmp_path: Path) -> None:
    assert Store(tmp_path).load() == {}


def test_either_copy_suffices(tmp_path: Path) -> None:
    Store(tmp_path).save([record()])
    for name in COPIES:
        for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-3])):
            whole = (tmp_path / name).read_bytes()
            damage(tmp_path / name)
            assert Store(tmp_path).load() == {"GPU-a": record()}
            (tmp_path / name).write_bytes(whole)


def test_the_newer_of_two_whole_copies_holds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([record()])
    older = (tmp_path / COPIES[1]).read_bytes()
    store.save([record(), record("GPU-b")])
    (tmp_path / COPIES[1]).write_bytes(older)
    assert set(Store(tmp_path).load()) == {"GPU-a", "GPU-b"}


@hypothesis_settings(max_examples=40)
@given(st.data())
def test_no_damage_is_read_as_something_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("state")
    Store(folder).save([record()])
    for name in COPIES:
        content = bytearray((folder / name).read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        (folder / name).write_bytes(content)
    with pytest.raises(CorruptStateError):
        Store(folder).load()


def test_a_file_that_is_too_long_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / COPIES[0]).write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(CorruptStateError):
        Store(tmp_path).load()


def test_a_newer_version_is_told_from_damage(tmp_path: Path) -> None:
    Store(tmp_path).save([record()])
    (tmp_path / COPIES[0]).write_text(sealed(FORMAT, '{"schema_version": 2}'))
    with pytest.raises(NewerStateError, match="schema 2"):
        Store(tmp_path).load()


def test_corrupt_files_are_kept_aside_and_not_for_ever(tmp_path: Path) -> None:
    for number in range(7):
        for name in COPIES:
            (tmp_path / name).write_text(f"damage {number}")
        store = Store(tmp_path)
        with pytest.raises(CorruptStateError):
            store.load()
        store.set_aside()
        assert Store(tmp_path).load() == {}
    assert (tmp_path / f"{COPIES[0]}.corrupt.1").read_text() == "damage 6"
    assert len(list(tmp_path.glob("*.corrupt.*"))) == 8


def test_a_disk_that_refuses_changes_nothing_in_memory(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([record()])
    (tmp_path / f"{COPIES[1]}.new").mkdir()
    with pytest.raises(StateError, match="no GPU is changed"):
        store.save([record(), record("GPU-b")])
    assert set(store.records) == {"GPU-a"}
    store.forget(["GPU-a"])
    assert store.records == {}
    assert store.stale
    (tmp_path / f"{COPIES[1]}.new").rmdir()
    store.flush()
    assert not store.stale
    assert Store(tmp_path).load() == {}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_text("x")])
def test_a_copy_that_somebody_damages_is_written_anew(
    tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    store = Store(tmp_path)
    store.save([record()])
    assert not store.stale
    damage(tmp_path / name)
    assert store.stale
    store.flush()
    assert not store.stale
    (tmp_path / next(each for each in COPIES if each != name)).unlink()
    assert Store(tmp_path).load() == {"GPU-a": record()}


def test_copies_that_nobody_depends_on_may_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([])
    (tmp_path / COPIES[0]).unlink()
    assert not store.stale


def test_a_fenced_process_writes_no_file(tmp_path: Path) -> None:
    def fenced() -> None:
        raise FencedError("over")

    with pytest.raises(FencedError):
        Store(tmp_path, fenced).save([record()])
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_lost_its_folder_leaves_anothers_files_alone(tmp_path: Path) -> None:
    def lost() -> None:
        raise StateError("the lock was removed")

    Store(tmp_path).save([record()])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    store = Store(tmp_path, lost)
    store.load()
    store.forget(["GPU-a"])
    assert store.records == {}
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_is_damaged_right_after_it_was_written_is_noticed(tmp_path: Path, name: str) -> None:
    """Between the renames of the two copies, and before anybody has looked at either."""
    damaged = False

    def damage() -> None:
        nonlocal damaged
        if (tmp_path / name).exists() and not damaged:
            damaged = True
            (tmp_path / name).write_text("")

    store = Store(tmp_path, damage)
    store.save([record()])
    if name == COPIES[1]:
        damage()
    assert damaged
    assert store.stale
    store.flush()
    assert not store.stale
    assert Store(tmp_path).load() == store.records
