import os
from pathlib import Path

import pytest
from tests.unit.agent.control.world import POD, MemoryDriver, gpu, intent

from heliotrope_agent.errors import PodsUnknownError
from heliotrope_agent.pods.claims import Claim, Holder, PodName, Standing
from heliotrope_agent.pods.folder import FolderOwners

THEIRS = PodName("training", "job-0")


def test_the_file_says_who_has_which_gpu(tmp_path: Path) -> None:
    driver = MemoryDriver([gpu(0), gpu(1), gpu(2), gpu(3, mig=True)])
    (tmp_path / "gpus.yaml").write_text(
        "gpus: {GPU-0: {namespace: serving, pod: decode-0}, GPU-1: {namespace: training, pod: job-0}}"
    )
    owners = FolderOwners(tmp_path, driver)
    assert owners.holders([intent(POD, sm_clock_mhz=600)]) == {
        "GPU-0": Holder(Standing.ELIGIBLE, POD),
        "GPU-1": Holder(Standing.FOREIGN_OWNER, THEIRS),
        "GPU-2": Holder(Standing.FREE),
        "GPU-3": Holder(Standing.MIG),
    }
    assert owners.recent_claims()["GPU-0"] == (Claim(POD, "engine", "GPU-0"),)
    (tmp_path / "gpus.yaml").write_text("gpus: {}")
    assert owners.holders([])["GPU-0"] == Holder(Standing.FREE)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "gpus: [1]",
        "gpus: {GPU-0: {pod: x}}",
        "gpus: {1: {namespace: a, pod: b}}",
        "{",
        "since: 2026-13-45",
        "[" * 5_000,
        "gpus: {}" + " " * 300_000,
    ],
    ids=range(10),
)
def test_owners_are_unknown_where_it_does_not(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "gpus.yaml").write_text(text)
    with pytest.raises(PodsUnknownError, match=r"gpus\.yaml"):
        FolderOwners(tmp_path, MemoryDriver([gpu(0)])).holders([])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gpus.yaml")
    with pytest.raises(PodsUnknownError, match="is not a file"):
        FolderOwners(tmp_path, MemoryDriver([gpu(0)])).holders([])
