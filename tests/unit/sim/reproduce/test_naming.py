import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.naming import PACKAGES, UnnamedError, identity, key_of

VERSIONS = {"code": "a"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.text())
    ),
    max_leaves=10,
)


@dataclass(frozen=True, slots=True)
class Task:
    names: frozenset[str]
    values: tuple[float, ...]


def work(task: Any) -> Any:
    return task


def other(task: Any) -> Any:
    return task


def key(task: Any) -> str:
    return key_of(work, task, VERSIONS)


@given(values, values)
def test_equal_tasks_have_equal_names_and_others_have_others(a: Any, b: Any) -> None:
    assert key(a) == key(a)
    # repr tells True from 1 and 1 from 1.0, which are equal.
    assert (key(a) == key(b)) == (repr(a) == repr(b) or (type(a) is type(b) and a == b and same_kinds(a, b)))


def same_kinds(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(same_kinds(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return all(same_kinds(x, y) and type(x) is type(y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (not isinstance(a, float) or str(a) == str(b))


def test_the_function_the_versions_and_every_field_count() -> None:
    task = Task(frozenset("abc"), (1.0, 2.0))
    names = {
        key(task),
        key_of(other, task, VERSIONS),
        key_of(work, task, {"code": "b"}),
        key(Task(frozenset("abd"), (1.0, 2.0))),
        key(Task(frozenset("abc"), (1.0, 2.5))),
        key(partial(work, task)),
        key(Settings(seed=1)),
        key(Settings(seed=2)),
        key(np.arange(3)),
        key(np.arange(3.0)),
        key(np.arange(3)[::-1]),
        key(Task),
        key(b"a"),
        key("a"),
    }
    assert len(names) == 14


def test_what_a_path_leads_to_counts(tmp_path: Path) -> None:
    file = tmp_path / "a" / "rates.csv"
    file.parent.mkdir()
    absent = key(file)
    file.write_text("1")
    first, folder = key(file), key(file.parent)
    file.write_text("2")
    assert len({absent, first, folder, key(file), key(file.parent)}) == 5


def test_what_no_other_process_can_name_has_no_name() -> None:
    looped: list[Any] = []
    looped.append(looped)
    for value in (lambda: 1, looped, open, (i for i in range(3))):
        if value is open:
            assert key(value)
            continue
        with pytest.raises(UnnamedError):
            key(value)


def test_names_do_not_depend_on_the_process() -> None:
    """Sets of texts are in another order in every process."""
    code = (
        "from tests.unit.sim.reproduce.test_naming import *;"
        "print(key(Task(frozenset('abcdefgh'), (1.0,))), key({'x': {'b', 'a', 'c'}, 'y': Settings()}))"
    )
    root = Path(__file__).parents[4]
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_the_identity_has_all_that_results_depend_on() -> None:
    found = identity()
    assert found.keys() == {"python", "heliotrope", "code", "data", *PACKAGES}
    assert len(found["code"]) == len(found["data"]) == 16
    assert json.dumps(dict(found))
