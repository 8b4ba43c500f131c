from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.agent.rig import Rig
from tests.support.nvml import build
from tests.support.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote({"LD_LIBRARY_PATH": str(build.ensure())}) as found:
        yield found


@pytest.fixture
def rig(tmp_path: Path, zygote: Zygote) -> Iterator[Rig]:
    """A node with two GPUs."""
    found = Rig(tmp_path, zygote)
    yield found
    found.close()
