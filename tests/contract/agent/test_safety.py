"""The safety list: real processes and signals, the real nvidia-ml-py on the compiled stand-in, a real socket."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.contract.agent.rig import Rig, uid, until
from tests.support.nvml.node import Partition, Privilege

from heliotrope_agent.state.fence import Fence

pytestmark = pytest.mark.slow

POD = ("serving", "decode-0")
OTHER = ("training", "job-0")


def set_up(rig: Rig, mhz: int = 810, watts: int = 300) -> None:
    """Both GPUs are one pod's, and an intent asks for a clock and a limit."""
    rig.place({POD: [0, 1]})
    rig.wish(rig.intent([POD], smClockMhz=mhz, watts=watts))


def test_originals_are_on_disk_twice_before_the_first_write(rig: Rig) -> None:
    set_up(rig)
    with rig.node.hang("nvmlDeviceSetGpuLockedClocks") as hung:
        agent = rig.agent()
        until("the first write is under way", lambda: hung.waiting > 0)
        assert rig.restored(), "nothing was changed yet"
        for name in ("originals.a", "originals.b"):
            text = (rig.state / name).read_text()
            assert all(uuid in text for uuid in rig.uuids)
        found = rig.records()[rig.uuids[0]]
        assert found.original.power_limit_milliwatts == 400_000
        assert (found.set.sm_clock_mhz, found.set.power_limit_milliwatts) == (810, 300_000)
        assert (found.namespace, found.pod) == POD
    rig.until_locked(810, 810)
    agent.signal(signal.SIGTERM)
    assert agent.wait(30.0) == 0
    assert rig.restored()
    assert rig.records() == {}


def test_settings_are_clamped_read_back_and_reported_and_memory_is_not_touched(rig: Rig) -> None:
    set_up(rig, mhz=817, watts=9_999)
    rig.agent()
    rig.until_locked(810, 810)
    until("reported", lambda: rig.condition() == ("True", "Clamped"))
    status = rig.status()
    gpu = status["gpus"][0]
    assert gpu["requested"] == {"smClockMhz": 817, "watts": 9_999}
    assert gpu["effective"] == {"smClockMhz": 810, "watts": 400}
    assert gpu["original"] == {"watts": 400}
    assert gpu["owner"] == {"namespace": "serving", "pod": "decode-0", "variant": "variant-decode-0", "role": "decode"}
    assert status["managedGpus"] == 2
    assert {each.function for each in rig.node.writes()} <= {
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceSetPowerManagementLimit",
    }


def test_sigterm_restores_with_kubelet_and_wishes_gone_and_more_signals_change_nothing(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGHUP)
    rig.kubelet.stop()
    (rig.wishes / "nodepower.yaml").write_text("{broken")
    time.sleep(0.5)
    assert rig.locks() == [810, 810], "neither a hang-up nor silence changes what is set"
    with rig.node.hang("nvmlDeviceResetGpuLockedClocks") as hung:
        agent.signal(signal.SIGTERM)
        until("it restores", lambda: hung.waiting > 0)
        for _ in range(3):
            agent.signal(signal.SIGTERM)
            agent.signal(signal.SIGINT)
    assert agent.wait(30.0) == 0
    assert rig.restored()
    assert rig.condition() == ("False", "AgentStopped")


def test_sigterm_ends_in_time_with_a_driver_that_hangs_for_one_gpu(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent("--restore-seconds=1")
    rig.until_locked(810, 810)
    with rig.node.hang("nvmlDeviceResetGpuLockedClocks", gpu=0):
        agent.signal(signal.SIGTERM)
        assert agent.wait(20.0) == 5
        assert rig.locks() == [810, None], "one that hangs keeps no other waiting"
        assert set(rig.records()) == {rig.uuids[0]}
    again = rig.run("--restore")
    assert again.wait(30.0) == 0
    assert rig.restored()


def test_sigkill_then_a_start_recovers_before_anything_else(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    assert rig.locks() == [810, 810]
    rig.wish_nothing()
    again = rig.agent()
    rig.until_restored()
    until("told", lambda: "OrphansRestored" in rig.events())
    again.signal(signal.SIGTERM)
    assert again.wait(30.0) == 0


def test_a_reboot_forgets_and_leaves_what_the_administrator_set_since(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    rig.reboot()
    rig.node.foreign_sm_lock(1200, 1200, 0)
    rig.node.foreign_power_limit(350_000, 1)
    rig.wish_nothing()
    first = rig.node.write_count
    rig.agent()
    until("forgotten", lambda: rig.records() == {})
    assert rig.locks() == [1200, None]
    assert rig.node.read(1).power_limit_milliwatts == 350_000
    assert rig.node.write_count == first


def test_without_renewals_the_lease_ends_and_everything_is_put_back(rig: Rig) -> None:
    set_up(rig)
    rig.renew()
    rig.agent("--folder-lease-seconds=2")
    until("a wish without a lease is not obeyed", lambda: rig.condition("LeaseValid") == ("Unknown", "NotSeen"))
    assert rig.node.write_count == 0
    rig.renew()
    rig.until_locked(810, 810)
    rig.until_restored()
    until("told", lambda: rig.condition("LeaseValid") == ("False", "Expired") and rig.reasons() == ["LeaseExpired"])
    rig.renew()
    rig.until_locked(810, 810)


def test_a_gpu_that_moves_to_another_tenant_is_released(rig: Rig) -> None:
    set_up(rig)
    rig.agent()
    rig.until_locked(810, 810)
    rig.place({OTHER: [0, 1]})
    rig.until_restored()
    until("told", lambda: rig.reasons() == ["ForeignOwner"] and rig.records() == {})


def test_a_pod_of_the_same_name_that_is_another_is_not_obeyed(rig: Rig) -> None:
    set_up(rig)
    rig.agent()
    rig.until_locked(810, 810)
    intent = rig.intent([POD], smClockMhz=810)
    intent["pods"][0]["uid"] = uid(OTHER)
    rig.wish(intent)
    rig.until_restored()


def test_partitioned_shared_foreign_and_unverified_gpus_are_left_alone(rig: Rig) -> None:
    for _ in range(3):
        rig.node.add()
    rig.uuids = [rig.node.uuid(gpu) for gpu in range(5)]
    rig.originals = rig.settings()
    pods = [("serving", f"pod-{gpu}") for gpu in range(5)]
    rig.place({pod: [gpu] for gpu, pod in enumerate(pods)})
    rig.node.mig([Partition("MIG-1", 1)], 0)
    rig.kubelet.give(OTHER, [rig.uuids[1]])
    rig.node.processes([42], 3)
    rig.wish(*(rig.intent([pod], smClockMhz=600) for gpu, pod in enumerate(pods) if gpu != 2))
    rig.agent()
    rig.until_locked(None, None, None, None, 600)
    until("told why", lambda: bool(rig.reasons(0)))
    assert [rig.reasons(gpu) for gpu in range(3)] == [["Mig"], ["Shared"], ["ForeignOwner"]]
    assert rig.reasons(3) in (["Unverified"], ["ForeignOwner"])
    assert {each.gpu for each in rig.node.writes()} == {4}


def test_all_gpus_of_a_pod_or_none(rig: Rig) -> None:
    set_up(rig)
    rig.node.processes([], 1)
    agent = rig.agent()
    until("reported", lambda: rig.reasons(1) == ["Unverified"])
    assert rig.node.write_count == 0
    rig.place({})
    rig.place({POD: [0, 1]})
    rig.until_locked(810, 810)
    rig.kubelet.give(OTHER, [rig.uuids[1]])
    rig.until_restored()
    agent.signal(signal.SIGTERM)
    assert agent.wait(30.0) == 0


def test_a_driver_error_in_one_gpu_of_a_pod_takes_the_other_back(rig: Rig) -> None:
    set_up(rig)
    with rig.node.fail(999, "nvmlDeviceSetGpuLockedClocks", gpu=1):
        rig.agent()
        until("reported", lambda: rig.condition() == ("False", "DriverError"))
        until("taken back", lambda: rig.restored() and rig.records() == {})
    rig.until_locked(810, 810)
    until("reported", lambda: rig.condition() == ("True", "Applied"))


def test_without_the_privilege_nothing_is_left_half_done(rig: Rig) -> None:
    set_up(rig)
    rig.node.privilege(Privilege.NOBODY)
    agent = rig.agent()
    until("reported", lambda: rig.condition() == ("False", "Denied"))
    assert rig.restored()
    until("forgotten", lambda: rig.records() == {})
    agent.signal(signal.SIGTERM)
    assert agent.wait(30.0) == 0


def test_a_second_agent_refuses(rig: Rig) -> None:
    set_up(rig)
    first = rig.agent()
    rig.until_locked(810, 810)
    second = rig.agent()
    assert second.wait(30.0) == 3
    assert f"agent with pid {first.pid}" in second.text()
    assert rig.locks() == [810, 810]


def test_unknown_owners_change_nothing_for_a_while_and_nothing_new_is_set(rig: Rig) -> None:
    set_up(rig)
    rig.agent("--unknown-owner-seconds=3")
    rig.until_locked(810, 810)
    rig.kubelet_fails()
    rig.wish(rig.intent([POD], smClockMhz=600, watts=300))
    until("reported", lambda: rig.reasons() == ["OwnersUnknown"])
    assert rig.locks() == [810, 810]
    rig.until_restored()
    rig.kubelet_fails(False)
    rig.until_locked(600, 600)


def test_corrupt_originals_lead_to_the_drivers_defaults_and_an_event(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    (rig.state / "originals.a").write_text("nonsense")
    agent = rig.agent()
    until("one whole copy is enough", lambda: "OrphansRestored" in rig.events())
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    for name in ("originals.a", "originals.b"):
        (rig.state / name).write_bytes((rig.state / name).read_bytes()[:-5])
    rig.wish(rig.intent([POD], smClockMhz=600), enforcement="Advise")
    rig.agent()
    rig.until_restored()
    until("told", lambda: {"OriginalsLost", "DefaultsRestored"} <= set(rig.events()))
    until("kept aside", lambda: (rig.state / "originals.a.corrupt.1").exists() and rig.records() == {})
    rig.wish(rig.intent([POD], smClockMhz=600))
    rig.until_locked(600, 600)


def test_corrupt_originals_and_unknown_owners_wait_for_a_bounded_time(rig: Rig) -> None:
    set_up(rig)
    rig.node.foreign_sm_lock(705, 705, 1)
    rig.state.mkdir()
    for name in ("originals.a", "originals.b"):
        (rig.state / name).write_text("nonsense")
    rig.kubelet.stop()
    rig.agent("--defaults-seconds=2")
    until("told", lambda: "OriginalsLost" in rig.events())
    assert rig.locks() == [None, 705]
    rig.until_restored()


def test_a_file_of_a_newer_version_is_refused(rig: Rig) -> None:
    from heliotrope.sealed import sealed

    set_up(rig)
    rig.state.mkdir()
    (rig.state / "originals.a").write_text(sealed("heliotrope-originals", '{"schema_version": 2, "gpus": []}'))
    agent = rig.agent()
    assert agent.wait(30.0) == 6
    assert "run the version that wrote it" in agent.text()
    assert rig.node.write_count == 0


def test_an_unwritable_state_folder_stops_new_settings_and_not_restoring(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    broken = rig.state / "originals.a.new"
    broken.mkdir()
    rig.wish(rig.intent([POD], smClockMhz=600, watts=300))
    until("reported", lambda: rig.condition() == ("False", "StateUnwritable"))
    assert rig.locks() == [810, 810]
    rig.wish_nothing()
    rig.until_restored()
    assert set(rig.records()) == set(rig.uuids), "the disk does not know yet"
    broken.rmdir()
    until("the disk knows", lambda: rig.records() == {})
    set_up(rig)
    rig.until_locked(810, 810)
    broken.mkdir()
    agent.signal(signal.SIGTERM)
    assert agent.wait(30.0) == 0
    assert rig.restored()


def test_slowing_down_dwells_and_speeding_up_does_not(rig: Rig) -> None:
    set_up(rig)
    rig.agent("--lower-dwell-seconds=3600")
    rig.until_locked(810, 810)
    rig.wish(rig.intent([POD], smClockMhz=600, watts=350))
    until("the half that raises", lambda: rig.node.read(0).power_limit_milliwatts == 350_000)
    until("told", lambda: rig.condition() == ("False", "Dwell"))
    assert rig.locks() == [810, 810]
    rig.wish(rig.intent([POD], smClockMhz=1005, watts=350))
    rig.until_locked(1005, 1005)
    rig.wish_nothing()
    rig.until_restored()


def test_slowing_down_is_limited_in_rate(rig: Rig) -> None:
    set_up(rig)
    rig.agent("--gpu-changes-per-hour=2")
    rig.until_locked(810, 810)
    rig.wish(rig.intent([POD], smClockMhz=795, watts=300))
    rig.until_locked(795, 795)
    rig.wish(rig.intent([POD], smClockMhz=780, watts=300))
    until("told", lambda: rig.reasons() == ["Dwell"])
    assert rig.locks() == [795, 795]


def test_advice_only_reports(rig: Rig) -> None:
    set_up(rig)
    rig.wish(rig.intent([POD], smClockMhz=810), enforcement="Advise")
    rig.agent()
    until("reported", lambda: rig.condition() == ("False", "AdviseOnly"))
    assert rig.status()["gpus"][0]["requested"] == {"smClockMhz": 810}
    assert rig.node.write_count == 0
    rig.wish(rig.intent([POD], smClockMhz=810))
    rig.until_locked(810, 810)
    rig.wish(rig.intent([POD], smClockMhz=810, enforcement="Advise"))
    rig.until_restored()


def test_engines_that_rest_have_their_own_clock(rig: Rig) -> None:
    awake, resting = ("serving", "a"), ("serving", "b")
    rig.place({awake: [0], resting: [1]})
    rig.wish(rig.intent([awake, resting], smClockMhz=1005, restingPods=["b"], restingSmClockMhz=210))
    rig.agent()
    rig.until_locked(1005, 210)


def test_somebody_else_who_sets_the_gpu_is_not_fought(rig: Rig) -> None:
    set_up(rig)
    rig.agent("--foreign-hold-seconds=3600")
    rig.until_locked(810, 810)
    rig.node.foreign_power_limit(250_000, 0)
    until("told", lambda: rig.reasons() == ["ForeignWriter"] and "ForeignWriter" in rig.events())
    until("ours is put back, theirs is left", lambda: rig.locks() == [None, None] and rig.records() == {})
    assert [each.power_limit_milliwatts for each in rig.node.states()] == [250_000, 400_000]
    first = rig.node.write_count
    time.sleep(1.0)
    assert rig.node.write_count == first


def test_the_watchdog_restores_when_the_agent_was_killed(rig: Rig) -> None:
    set_up(rig)
    watchdog = rig.watchdog()
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    rig.until_restored()
    until("forgotten", lambda: rig.records() == {})
    again = rig.agent()
    rig.until_locked(810, 810)
    until("told", lambda: "WatchdogRestored" in rig.events())
    again.signal(signal.SIGTERM)
    assert again.wait(30.0) == 0
    watchdog.signal(signal.SIGTERM)
    assert watchdog.wait(30.0) == 0


def test_the_watchdog_kills_and_restores_when_the_agent_stopped(rig: Rig) -> None:
    set_up(rig)
    rig.watchdog()
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGSTOP)
    rig.until_restored()
    agent.signal(signal.SIGCONT)
    assert agent.wait(30.0) == -signal.SIGKILL


def test_the_watchdog_restores_when_the_agent_hangs_in_the_driver(rig: Rig) -> None:
    set_up(rig)
    rig.watchdog()
    agent = rig.agent()
    rig.until_locked(810, 810)
    with rig.node.hang("nvmlDeviceSetGpuLockedClocks") as hung:
        rig.wish(rig.intent([POD], smClockMhz=600, watts=300))
        until("it hangs", lambda: hung.waiting > 0)
        rig.until_restored()
        assert agent.wait(30.0) == -signal.SIGKILL


def test_an_agent_that_cannot_be_seen_is_fenced_off(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGSTOP)
    Fence(rig.state).raise_()
    first = rig.node.write_count
    rig.wish(rig.intent([POD], smClockMhz=600))
    agent.signal(signal.SIGCONT)
    assert agent.wait(30.0) == 4
    assert rig.node.write_count == first, "it writes nothing any more"
    rig.wish_nothing()
    rig.agent()
    rig.until_restored()


def test_the_watchdog_ends_only_after_the_agent(rig: Rig) -> None:
    set_up(rig)
    watchdog = rig.watchdog()
    agent = rig.agent()
    rig.until_locked(810, 810)
    with rig.node.hang("nvmlDeviceSetGpuLockedClocks") as hung:
        rig.wish(rig.intent([POD], smClockMhz=600, watts=300))
        until("it hangs", lambda: hung.waiting > 0)
        agent.signal(signal.SIGTERM)
        watchdog.signal(signal.SIGTERM)
        rig.until_restored()
    assert watchdog.wait(30.0) == 0


def test_without_a_watchdog_nothing_new_is_set_and_what_is_set_stays(rig: Rig) -> None:
    set_up(rig)
    rig.agent("--require-watchdog", "--watchdog-seconds=1")
    until("told", lambda: rig.condition() == ("False", "NoWatchdog"))
    assert rig.node.write_count == 0
    watchdog = rig.watchdog("--watchdog-seconds=30")
    rig.until_locked(810, 810)
    watchdog.signal(signal.SIGKILL)
    watchdog.wait(30.0)
    (rig.state / "watchdog").unlink()
    rig.wish(rig.intent([POD], smClockMhz=600, watts=300))
    until("told", lambda: rig.condition() == ("False", "NoWatchdog"))
    assert rig.locks() == [810, 810]
    rig.watchdog("--watchdog-seconds=30")
    rig.until_locked(600, 600)


def test_restoring_by_hand(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    refused = rig.run("--restore")
    assert refused.wait(30.0) == 3
    assert "--force" in refused.text()
    forced = rig.run("--restore", "--force")
    assert forced.wait(30.0) == 0
    assert agent.wait(30.0) == 4
    assert rig.restored()

    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    dry = rig.run("--restore", "--dry-run")
    assert dry.wait(30.0) == 0
    assert rig.locks() == [810, 810]
    assert all(uuid in dry.text() for uuid in rig.uuids)
    assert "SM unlocked" in dry.text()
    with rig.node.fail(999, "nvmlDeviceResetGpuLockedClocks", gpu=1):
        half = rig.run("--restore", "--restore-seconds=1")
        assert half.wait(30.0) == 5
        assert rig.locks() == [None, 810]
    whole = rig.run("--restore")
    assert whole.wait(30.0) == 0
    assert rig.restored()
    nothing = rig.run("--restore")
    assert nothing.wait(30.0) == 0
    assert "no GPU of this node is set" in nothing.text()


def test_restoring_to_defaults_by_hand(rig: Rig) -> None:
    rig.state.mkdir()
    (rig.state / "originals.a").write_text("nonsense")
    rig.node.foreign_sm_lock(705, 705, 1)
    rig.node.foreign_power_limit(250_000, 0)
    refused = rig.run("--restore")
    assert refused.wait(30.0) == 6
    forced = rig.run("--restore", "--defaults")
    assert forced.wait(30.0) == 0
    assert rig.restored()


@pytest.mark.parametrize("owned", [False, True])
def test_a_dry_run_changes_nothing(rig: Rig, owned: bool) -> None:
    set_up(rig)
    if owned:
        agent = rig.agent()
        rig.until_locked(810, 810)
    first = rig.node.write_count
    dry = rig.agent("--dry-run")
    until("it says what would be set", lambda: owned or "GpuWouldBeSet" in dry.text())
    time.sleep(0.5)
    assert not dry.ended.is_set()
    assert rig.node.write_count == first
    dry.signal(signal.SIGTERM)
    assert dry.wait(30.0) == 0
    assert owned or all(
        f"GpuWouldBeSet: {uuid}: SM clock 810 MHz, power limit 300 W" in dry.text() for uuid in rig.uuids
    )
    if owned:
        assert rig.locks() == [810, 810]
        agent.signal(signal.SIGTERM)
        assert agent.wait(30.0) == 0
    else:
        assert not rig.state.exists()


def test_a_signal_in_the_first_moments_of_a_start_restores_what_was_left(rig: Rig) -> None:
    """The command as the image starts it, which a signal reaches long before any handler is there."""
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    command = ["env", "--block-signal=TERM,INT", sys.executable, "-m", "heliotrope_cli.main", "agent", "--node=n"]
    flags = (f"--state-folder={rig.state}", f"--boot-id={rig.boot_id}", f"--folder={rig.wishes}", "--metrics-port=0")
    with subprocess.Popen([*command, *flags], env=os.environ | rig.node.environment) as process:
        until("env has blocked it", lambda: blocks(process.pid, signal.SIGTERM))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) == 0
    assert rig.restored()


def blocks(pid: int, number: signal.Signals) -> bool:
    """Whether a process blocks a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    return bool(mask >> (number - 1) & 1)
