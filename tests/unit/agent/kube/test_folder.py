import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from heliotrope.api.v1alpha1.nodepower import NodePowerStatus
from heliotrope_agent.kube.folder import FolderCluster

POWER = """
apiVersion: heliotrope.io/v1alpha1
kind: NodePower
metadata: {name: NODE}
spec:
  enforcement: Enforce
  intents: [{namespace: serving, variant: v, pods: [{name: p, uid: u}], smClockMhz: MHZ}]
"""


class Followed:
    """A folder, and a cluster that follows it only when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_s = 100.0
        self.news = 0
        self.number = 0

    def cluster(self, lease_s: float = 0.0) -> FolderCluster:
        def changed() -> None:
            self.news += 1

        made = FolderCluster(
            self.folder,
            "n1",
            lease_s=lease_s,
            clock=lambda: self.now_s,
            wall_clock=lambda: 1_700_000_000.0,
            changed=changed,
            poll_s=3600.0,
        )
        made.start()
        self.made = made
        return made

    def write(self, mhz: int, *, node: str = "n1", name: str = "power.yaml") -> None:
        (self.folder / name).write_text(POWER.replace("NODE", node).replace("MHZ", str(mhz)))
        self.touch(name)

    def touch(self, name: str) -> None:
        """A time of change of its own, however coarse the file system's are."""
        self.number += 1
        os.utime(self.folder / name, ns=(self.number, self.number))

    def clock(self) -> int | None:
        power = self.made.wishes().node_power
        return None if power is None else power.spec.intents[0].sm_clock_mhz


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    found = Followed(tmp_path)
    yield found
    found.made.stop()


def test_the_nodes_own_wish_is_followed(followed: Followed) -> None:
    followed.write(600)
    followed.write(900, node="n2", name="other.yaml")
    (followed.folder / "gpus.yaml").write_text("gpus: {}")
    cluster = followed.cluster()
    assert followed.clock() == 600
    assert cluster.wishes().lease_until_s == math.inf
    followed.write(705)
    cluster._look()
    assert followed.clock() == 705
    cluster._look()
    assert followed.news == 2, "the same again is no news"
    (followed.folder / "power.yaml").unlink()
    cluster._look()
    assert cluster.wishes().node_power is None
    assert cluster.wishes().known


@pytest.mark.parametrize(
    "text", ["{", "apiVersion: heliotrope.io/v1alpha1\nkind: NodePower\nmetadata: {name: n1}\nspec: {clock: 1}", "\x00"]
)
def test_what_cannot_be_read_leaves_the_last_wish_and_is_told_once(
    followed: Followed, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    followed.write(600)
    cluster = followed.cluster()
    (followed.folder / "power.yaml").write_text(text)
    for _ in range(3):
        cluster._look()
    assert followed.clock() == 600
    assert len(caplog.records) == 1
    followed.write(705)
    cluster._look()
    assert followed.clock() == 705


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: 2026-13-45",
        b"\xff\xfe\x00",
        "[" * 5_000,
        POWER.replace("NODE", "n1").replace("spec:", "spec: &s").replace("MHZ", "*s"),
        POWER.replace("NODE", "n1").replace("MHZ", "0"),
        POWER.replace("NODE", "n1").replace("MHZ", "-810"),
        POWER.replace("NODE", "n1").replace("MHZ", "99999999999999999999"),
        "x" * 2_000_000,
        None,
    ],
    ids=range(10),
)
def test_no_file_takes_the_last_wish_away(followed: Followed, text: str | bytes | None) -> None:
    followed.write(810)
    cluster = followed.cluster()
    (followed.folder / "power.yaml").unlink()
    path = followed.folder / "other.yaml"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    followed.made._look()
    power = cluster.wishes().node_power
    assert power is not None
    assert power.spec.intents[0].sm_clock_mhz == 810


def test_a_lease_holds_from_a_change_that_was_seen(followed: Followed) -> None:
    followed.write(600)
    (followed.folder / "lease").write_text("")
    followed.touch("lease")
    cluster = followed.cluster(lease_s=10.0)
    assert cluster.wishes().lease_until_s == -math.inf, "what was there before may be of any age"
    followed.touch("lease")
    cluster._look()
    assert cluster.wishes().lease_until_s == 110.0
    followed.now_s = 105.0
    cluster._look()
    assert cluster.wishes().lease_until_s == 110.0


def test_status_and_events_lie_beside(followed: Followed) -> None:
    cluster = followed.cluster()
    cluster.report(NodePowerStatus(managed_gpus=2))
    assert yaml.safe_load((followed.folder / "status/n1.yaml").read_text())["managedGpus"] == 2
    cluster.event("GpuSet", "set", warning=False)
    path = followed.folder / "status/n1.events.jsonl"
    assert json.loads(path.read_text()) == {
        "time": "2023-11-14T22:13:20Z",
        "type": "Normal",
        "reason": "GpuSet",
        "message": "set",
    }
    path.write_text("x" * (1024 * 1024 + 1))
    cluster.event("GpuSet", "again", warning=True)
    assert len(path.read_text()) < 1000


def test_a_folder_that_cannot_be_written_stops_nobody(followed: Followed) -> None:
    cluster = followed.cluster()
    (followed.folder / "status").write_text("a file")
    calls: tuple[Callable[[], None], ...] = (
        lambda: cluster.report(NodePowerStatus()),
        lambda: cluster.event("GpuSet", "set", warning=False),
    )
    for call in calls:
        call()
