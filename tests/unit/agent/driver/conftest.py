"""A node with two GPUs, and NVIDIA's own binding on top of it in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.nvml.node import FakeNode
from tests.support.nvml.products import A100_80GB, H100_SXM

from heliotrope_agent.driver.nvml import Nvml


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    """GPU 0 is an A100, GPU 1 an H100; NVML in this process sees them."""
    with FakeNode.create(tmp_path / "gpus", A100_80GB, H100_SXM) as made, made.installed():
        yield made


@pytest.fixture
def driver(node: FakeNode) -> Iterator[Nvml]:
    made = Nvml()
    yield made
    made.close()
