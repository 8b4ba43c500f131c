"""Finished parts: used again when they are ours and whole, computed again in every other case."""

import io
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heliotrope_sim.reproduce.store import PartStore, default_folder
from heliotrope_sim.reproduce.workers import workers

VERSIONS = {"code": "a"}


class Trap:
    """Unpickled, it would have run code."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("trapped",))


def double(value: int) -> int:
    return 2 * value


def store_in(folder: Path, **settings: Any) -> PartStore:
    return PartStore(folder, **({"versions": VERSIONS} | settings))


def doubled(store: PartStore, tasks: list[int]) -> list[int]:
    with workers(1, Console(file=io.StringIO()), store=store) as pool:
        return pool.map("x", double, tasks)


def test_finished_parts_are_not_run_again(tmp_path: Path) -> None:
    first, second = store_in(tmp_path), store_in(tmp_path)
    assert doubled(first, [1, 2]) == [2, 4]
    assert doubled(second, [3, 2, 1]) == [6, 4, 2]
    assert (first.counts.reused, first.counts.computed, first.counts.kept) == (0, 2, 2)
    assert (second.counts.reused, second.counts.computed) == (2, 1)


def test_fresh_and_other_versions_use_nothing(tmp_path: Path) -> None:
    doubled(store_in(tmp_path), [1, 2])
    for settings in ({"fresh": True}, {"versions": {"code": "b"}}):
        again = store_in(tmp_path, **settings)
        assert doubled(again, [1, 2]) == [2, 4]
        assert (again.counts.reused, again.counts.computed) == (0, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:20] + bytes(32) + data[52:],
        lambda data: pickle.dumps(Trap()),
        lambda data: data[:50] + pickle.dumps(Trap()),
    ],
)
def test_damaged_and_foreign_entries_are_computed_again_and_never_unpickled(
    damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "store"
    doubled(store_in(folder), [1])
    (path,) = folder.glob("*.part")
    path.write_bytes(damage(path.read_bytes()))
    again = store_in(folder)
    assert doubled(again, [1]) == [2]
    assert (again.counts.distrusted, again.counts.reused, again.counts.computed) == (1, 0, 1)
    assert not Path("trapped").exists()
    whole = store_in(folder)
    doubled(whole, [1])
    assert whole.counts.reused == 1


def test_entries_of_another_store_or_name_are_not_trusted(tmp_path: Path) -> None:
    doubled(store_in(tmp_path / "theirs"), [1, 2])
    ours = store_in(tmp_path / "ours")
    for path in (tmp_path / "theirs").glob("*.part"):
        (tmp_path / "ours" / path.name).write_bytes(path.read_bytes())
    assert doubled(ours, [1, 2]) == [2, 4]
    assert ours.counts.distrusted == 2
    first, second = sorted((tmp_path / "ours").glob("*.part"))
    first.write_bytes(second.read_bytes())
    again = store_in(tmp_path / "ours")
    assert doubled(again, [1, 2]) == [2, 4]
    assert (again.counts.distrusted, again.counts.reused) == (1, 1)


def test_the_key_is_its_users_only_and_a_broken_one_is_replaced(tmp_path: Path) -> None:
    doubled(store_in(tmp_path), [1])
    key = tmp_path / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.write_bytes(b"short")
    again = store_in(tmp_path)
    assert doubled(again, [1]) == [2]
    assert again.counts.distrusted == 1
    assert len(key.read_bytes()) == 32


def test_the_store_is_bounded_and_forgets_what_was_used_longest_ago(tmp_path: Path) -> None:
    doubled(store_in(tmp_path), [1, 2, 3])
    for age, path in enumerate(sorted(tmp_path.glob("*.part"))):
        os.utime(path, (1e9 - age, 1e9 - age))
    doubled(store_in(tmp_path), [1])
    (tmp_path / ".part-left").write_bytes(b"x")
    os.utime(tmp_path / ".part-left", (1e9, 1e9))
    kept = store_in(tmp_path, most_entries=1)
    assert len(list(tmp_path.glob("*.part"))) == 1
    assert not (tmp_path / ".part-left").exists()
    doubled(kept, [1])
    assert kept.counts.reused == 1
    store_in(tmp_path, most_bytes=10)
    assert not list(tmp_path.glob("*.part"))


def test_what_cannot_be_kept_or_named_is_given_all_the_same(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with workers(1, Console(file=io.StringIO()), store=store) as pool:
        assert pool.map("x", lambda value: value, [1]) == [1]
        generator = pool.map("x", iter_of, [1])[0]
    assert next(generator) == 0
    assert (store.counts.kept, store.counts.not_kept) == (0, 2)


def iter_of(value: int) -> Any:
    return (i for i in range(value))


def test_the_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOTROPE_CACHE", "/somewhere")
    assert default_folder() == Path("/somewhere/parts")
    monkeypatch.delenv("HELIOTROPE_CACHE")
    assert default_folder() == Path.home() / ".cache" / "heliotrope" / "parts"


SCRIPT = """
import os, sys, time
from pathlib import Path
from rich.console import Console
from heliotrope_sim.reproduce.store import PartStore
from heliotrope_sim.reproduce.workers import workers

FOLDER = Path(os.environ["FOLDER"])

def work(i):
    with (FOLDER / "log").open("a") as log:
        log.write(f"{i}\\n")
    while i >= 3 and not (FOLDER / "go").exists():
        time.sleep(0.01)
    return i * i

if __name__ == "__main__":
    import script
    store = PartStore(FOLDER / "store", versions={"code": "a"})
    with workers(int(sys.argv[1]), Console(file=sys.stderr), store=store) as pool:
        print(pool.map("x", script.work, list(range(6))))
    print(store.counts.reused, store.counts.computed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_run_goes_on_with_the_rest_only(jobs: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "FOLDER": str(tmp_path), "PYTHONPATH": str(tmp_path)}

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py"), str(jobs)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = start()
    deadline = time.monotonic() + 60.0
    while len(list((tmp_path / "store").glob("*.part"))) < 3:
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60.0)
    assert first.returncode != 0
    assert "KeyboardInterrupt" in errors
    (tmp_path / "log").unlink()
    (tmp_path / "go").touch()
    out, _ = start().communicate(timeout=60.0)
    assert out.splitlines() == [str([i * i for i in range(6)]), "3 3"]
    assert sorted((tmp_path / "log").read_text().split()) == ["3", "4", "5"]
