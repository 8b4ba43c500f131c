from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.agent_calibrate.bench import Bench
from tests.support.nvml import build
from tests.support.zygote import Zygote


@pytest.fixture(scope="package")
def zygote() -> Iterator[Zygote]:
    with Zygote({"LD_LIBRARY_PATH": str(build.ensure())}) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Iterator[Bench]:
    """A node whose engine lives on; each test has files of its own."""
    found = Bench(tmp_path_factory.mktemp("node"), zygote, time_scale=20.0)
    yield found
    found.close()


@pytest.fixture
def bench(shared: Bench, tmp_path: Path) -> Iterator[Bench]:
    shared.output, shared.raw, shared.state = tmp_path / "out", tmp_path / "out" / "raw.json", tmp_path / "state"
    yield shared
    shared.node.slow_down(None)
    assert shared.sm_lock_mhz is None
