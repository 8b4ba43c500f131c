from pathlib import Path

import pytest

from heliotrope_agent.pods.processes import ProcessPods, Running, pod_uid

UID = "6cf9e6c1-1fb6-4bdb-b8b7-8e4cb5a6c8b8"
OTHER = "11111111-2222-4333-8444-555555555555"
UNDERSCORES = UID.replace("-", "_")
CONTAINER = "3f1e" * 16


@pytest.mark.parametrize(
    "text",
    [
        # Version 2, systemd: containerd, CRI-O, guaranteed.
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope\n",
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORES}.slice/crio-{CONTAINER}.scope/container\n",
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope\n",
        # Version 2, cgroupfs.
        f"0::/kubepods/burstable/pod{UID}/{CONTAINER}\n",
        f"0::/kubepods/pod{UID}/{CONTAINER}\n",
        # Version 1, cgroupfs and systemd, beside version 2's empty line.
        f"12:memory:/kubepods/burstable/pod{UID}/{CONTAINER}\n1:name=systemd:/kubepods/burstable/pod{UID}/{CONTAINER}\n0::/\n",
        f"11:cpu,cpuacct:/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope\n0::/\n",
        # A systemd path in a runtime that was told cgroupfs.
        f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORES}.slice:cri-containerd:{CONTAINER}\n",
        # Seen out of a cgroup namespace of one's own.
        f"0::/../../kubepods-burstable-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope\n",
        f"0::/../../pod{UID}/{CONTAINER}\n",
        # A kubelet under a cgroup root of its own, and in a container (kind).
        f"4:memory:/e2e-x/kubepods/pod{UID}/{CONTAINER}\n",
        f"0::/docker/{CONTAINER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope\n",
        # A process that outlives its cgroup.
        f"0::/kubepods/pod{UID} (deleted)\n",
        f"0::/kubepods/pod{UID.upper()}/{CONTAINER}\n",
        # A container that makes cgroups of its own, named like another pod.
        f"0::/kubepods/pod{UID}/{CONTAINER}/kubepods/pod{OTHER}/x\n",
    ],
)
def test_a_pods_process(text: str) -> None:
    assert pod_uid(text) == UID


def test_a_static_pods_uid_has_no_dashes() -> None:
    assert (
        pod_uid("0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/c\n") == "0123456789abcdef0123456789abcdef"
    )


@pytest.mark.parametrize(
    "text",
    [
        "0::/\n",
        "0::/system.slice/nvidia-persistenced.service\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
        f"0::/system.slice/docker-{CONTAINER}.scope\n",
        "0::/kubepods/podcast/x\n",
        f"0::/kubepods/pod{UID}0/x\n",
        f"0::/tripod{UID}/x\n",
    ],
)
def test_a_process_of_no_pod(text: str) -> None:
    assert pod_uid(text) is None


@pytest.mark.parametrize("text", ["", "nonsense\n", f"2:cpu:/kubepods/pod{UID}/c\n1:memory:/kubepods/pod{OTHER}/c\n"])
def test_what_says_nothing_or_two_things_is_unknown(text: str) -> None:
    with pytest.raises(ValueError):
        pod_uid(text)


def test_processes_of_a_gpu_put_together(tmp_path: Path) -> None:
    for pid, text in {10: f"0::/kubepods/pod{UID}/c\n", 11: f"0::/kubepods/pod{UID}/d\n", 12: "0::/init\n"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    pods = ProcessPods(tmp_path)
    assert pods.running([]) == Running()
    assert pods.running([10, 11]) == Running(frozenset({UID}))
    assert pods.running([10, 12, 13]) == Running(frozenset({UID}), outside=True, unknown=frozenset({13}))


def test_this_very_process_is_read() -> None:
    running = ProcessPods().running([__import__("os").getpid(), 2**22 + 1])
    assert running.unknown == {2**22 + 1}
