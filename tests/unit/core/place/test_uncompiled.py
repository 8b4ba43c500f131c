"""Without numba the loops are Python: slower, and the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["test_estimate.py", "test_in_turn.py", "test_projection.py"])
def test_uncompiled_loops_pass_the_same_tests(file: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout[-3_000:]
