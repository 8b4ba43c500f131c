"""`make test` is three runs of pytest with one exit status."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTEST = """#!/bin/sh
echo "$@" >> {calls}
case "$1" in tests/unit) exit {unit} ;; tests) exit {contract} ;; *) exit {rest} ;; esac
"""
EVERYTHING = ["tests/unit -n auto", "tests --ignore=tests/unit -n 4 --dist loadfile", "e2e -m not node"]


@pytest.mark.parametrize(
    ("unit", "contract", "rest", "runs"),
    [(0, 0, 0, 3), (1, 0, 0, 3), (0, 1, 0, 3), (0, 0, 1, 3), (1, 1, 1, 3), (2, 0, 0, 1), (0, 2, 0, 2), (0, 0, 5, 3)],
)
def test_whatever_fails_fails_make_test(tmp_path: Path, unit: int, contract: int, rest: int, runs: int) -> None:
    fake, calls = tmp_path / "pytest", tmp_path / "calls"
    fake.write_text(PYTEST.format(calls=calls, unit=unit, contract=contract, rest=rest), encoding="utf-8")
    fake.chmod(0o755)
    # `-o`: the environment is as it is; RUN: no control plane is built.
    command = ["make", "-s", "-o", ".venv/.synced", "test", f"PYTEST={fake}", "RUN=true"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) == (unit == contract == rest == 0), done.stderr
    asked = calls.read_text(encoding="utf-8").splitlines()
    assert asked == EVERYTHING[:runs], "everything, and nothing twice"
