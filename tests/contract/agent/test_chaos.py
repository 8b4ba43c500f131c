"""A hundred rounds of disasters on two nodes; each ends with every clock and limit as it was.

The seed is printed; `HELIOTROPE_CHAOS_SEED` repeats its choices (what the processes make of them depends on their
timing as well). `HELIOTROPE_CHAOS_ROUNDS` plays more rounds.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.agent.rig import Pod, Rig, until
from tests.support.nvml.node import Rule
from tests.support.zygote import Started, Zygote

GPUS = 3
PODS: tuple[Pod, ...] = tuple(("serving", f"engine-{number}") for number in range(GPUS))
NODES = 2
"""Played side by side where there are workers, each with its share of the rounds."""
ROUNDS = int(os.environ.get("HELIOTROPE_CHAOS_ROUNDS", "100")) // NODES
FLAGS = (
    "--look-seconds=0.05",
    "--watchdog-seconds=0.6",
    "--restore-seconds=3",
    "--unknown-owner-seconds=1",
    "--folder-lease-seconds=1",
    "--retry-seconds=0.05",
    "--foreign-hold-seconds=0.1",
    "--gpu-changes-per-hour=100000",
    "--node-changes-per-minute=100000",
    "--log-level=warning",
)
FALLIBLE = (
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetClockInfo",
)


class Chaos:
    """A node whose processes somebody kills and somebody starts again."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        self.rig = rig
        self.rng = rng
        self.agent: Started | None = None
        self.watchdog: Started | None = None
        self.dismissed = False
        """Whether the watchdog was asked to end; it may yet watch for a while."""
        self.rules: list[Rule] = []
        self.lost: int | None = None
        self.kills = 0
        self.set_rounds = 0
        self.renewing = threading.Event()
        self.over = threading.Event()
        self.renewer = threading.Thread(target=self._renew)
        self.renewer.start()

    def close(self) -> None:
        self.over.set()
        self.renewer.join()

    def _renew(self) -> None:
        while not self.over.wait(0.2):
            if self.renewing.is_set():
                self.rig.renew()

    # Somebody starts again what has died

    def revive(self) -> None:
        if self.agent is None or self.agent.ended.is_set():
            self.agent = self.rig.agent(*FLAGS)
        if self.dismissed:
            self.kill(self.watchdog, signal.SIGKILL)
        if self.watchdog is None or self.watchdog.ended.is_set():
            self.watchdog, self.dismissed = self.rig.watchdog(*FLAGS), False

    def heal(self) -> None:
        """The driver, the kubelet and the API server work again, and nobody is stopped."""
        while self.rules:
            self.rules.pop().remove()
        if self.lost is not None:
            self.rig.node.lose(self.lost, lost=False)
            self.lost = None
        self.rig.kubelet_fails(False)
        for each in self._processes():
            each.signal(signal.SIGCONT)

    def _processes(self) -> list[Started]:
        return [each for each in (self.agent, self.watchdog) if each is not None]

    # What a round begins with

    def wish(self) -> None:
        gpus = self.rng.sample(range(GPUS), GPUS)
        cut = self.rng.randint(1, GPUS)
        self.rig.place({PODS[0]: sorted(gpus[:cut]), **({PODS[1]: sorted(gpus[cut:])} if cut < GPUS else {})})
        self.rig.wish(
            *(
                self.rig.intent([pod], smClockMhz=self.rng.randrange(300, 1200), watts=self.rng.randrange(150, 340))
                for pod in PODS[: self.rng.randint(1, 2)]
            )
        )
        self.renewing.set()

    # Disasters

    def kill(self, which: Started | None, number: signal.Signals) -> None:
        if which is not None and not which.ended.is_set():
            self.kills += 1
            which.signal(number)
            if number is signal.SIGKILL:
                which.wait(30.0)
            self.dismissed = self.dismissed or (which is self.watchdog and number is signal.SIGTERM)

    def kill_agent(self) -> None:
        self.kill(self.agent, self.rng.choice((signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)))

    def kill_watchdog(self) -> None:
        self.kill(self.watchdog, self.rng.choice((signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)))

    def kill_both(self) -> None:
        for each in self.rng.sample(self._processes(), len(self._processes())):
            self.kill(each, signal.SIGKILL)

    def wake(self) -> None:
        for each in self._processes():
            each.signal(signal.SIGCONT)

    def move(self) -> None:
        gpus = self.rng.sample(range(GPUS), GPUS)
        cut = self.rng.randint(0, GPUS)
        self.rig.place({PODS[1]: gpus[:cut], PODS[2]: gpus[cut:]})

    def api_outage(self) -> None:
        self.renewing.clear()
        (self.rig.wishes / "nodepower.yaml").write_text("{unreadable")

    def kubelet_outage(self) -> None:
        self.rig.kubelet_fails()

    def driver_errors(self) -> None:
        gpu = self.rng.randrange(GPUS)
        count = self.rng.randint(1, 5)
        self.rules.append(self.rig.node.fail(999, self.rng.choice(FALLIBLE), gpu=gpu, count=count))

    def driver_hangs(self) -> None:
        self.rules.append(self.rig.node.hang(self.rng.choice(FALLIBLE), gpu=self.rng.randrange(GPUS), count=1))

    def lose(self) -> None:
        if self.lost is None:
            self.lost = self.rng.randrange(GPUS)
            self.rig.node.lose(self.lost)

    def reboot(self) -> None:
        self.heal()
        self.kill_both()
        self.rig.reboot()
        administrator(self.rig)
        self.revive()

    def new_wish(self) -> None:
        self.wish()

    def disaster(self) -> Callable[[], None]:
        return self.rng.choice(
            (
                *(self.kill_agent,) * 4,
                *(self.kill_watchdog,) * 2,
                self.kill_both,
                self.wake,
                self.revive,
                *(self.move,) * 2,
                self.api_outage,
                self.kubelet_outage,
                self.driver_errors,
                self.driver_hangs,
                self.lose,
                self.reboot,
                self.new_wish,
            )
        )

    # How a round ends; each must put everything back

    def nothing_is_wished(self) -> None:
        self.heal()
        self.revive()
        self.rig.wish_nothing()

    def both_die_and_start_again(self) -> None:
        self.heal()
        self.kill_both()
        self.rig.wish_nothing()
        self.revive()

    def the_pod_is_deleted(self) -> None:
        self.heal()
        self.revive()
        for each in self._processes():
            self.kill(each, signal.SIGTERM)

    def the_lease_ends(self) -> None:
        self.heal()
        self.revive()
        self.renewing.clear()

    def the_agent_dies_for_good(self) -> None:
        self.heal()
        self.revive()
        self.kill(self.agent, signal.SIGKILL)

    def a_human_restores(self) -> None:
        self.heal()
        self.kill_both()
        assert self.rig.run("--restore").wait(30.0) == 0

    def ending(self) -> Callable[[], None]:
        return self.rng.choice(
            (
                self.nothing_is_wished,
                self.both_die_and_start_again,
                self.the_pod_is_deleted,
                self.the_lease_ends,
                self.the_agent_dies_for_good,
                self.a_human_restores,
            )
        )

    def play(self, number: int) -> None:
        """One round."""
        began_s = time.monotonic()
        self.revive()
        self.wish()
        # Whoever is being restored or started still is not waited for, as that is a round as well, unless the machine
        # is so busy that most rounds would be such.
        patience_s = 1.0 if 2 * self.set_rounds >= number else 4.0
        try:
            until("something is set", lambda: not self.rig.restored(), patience_s)
        except AssertionError:
            pass
        else:
            self.set_rounds += 1
        story = [self.kill_agent, *(self.disaster() for _ in range(self.rng.randint(1, 4)))]
        self.rng.shuffle(story)
        ending = self.ending()
        told = f"round {number}: {', '.join(each.__name__ for each in story)}; {ending.__name__}"
        set_s = time.monotonic() - began_s
        for each in story:
            each()
            self.over.wait(self.rng.choice((0.0, 0.02, 0.1)))
        ending()
        until(f"every GPU as it was, after {told}", self.rig.restored)
        if ending != self.the_pod_is_deleted and ending != self.a_human_restores:
            until(f"nothing left in the file, after {told}", lambda: not self.rig.records())
        print(f"{told} ({set_s:.1f} s until something was set, {time.monotonic() - began_s:.1f} s in all)", flush=True)


def administrator(rig: Rig) -> None:
    """What the node's administrator sets at each boot: an original that is no default."""
    rig.node.foreign_power_limit(350_000, 1)


@pytest.fixture
def chaos(tmp_path: Path, zygote: Zygote) -> Iterator[Chaos]:
    seed = int(os.environ.get("HELIOTROPE_CHAOS_SEED", random.randrange(10**6)))
    print(f"HELIOTROPE_CHAOS_SEED={seed}")
    rig = Rig(tmp_path, zygote, GPUS)
    administrator(rig)
    rig.originals = rig.settings()
    found = Chaos(rig, random.Random(seed))
    yield found
    found.close()
    found.heal()
    rig.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("node", range(NODES))
def test_whatever_happens_every_gpu_ends_as_it_was(chaos: Chaos, node: int) -> None:
    for number in range(ROUNDS):
        chaos.play(number)
    assert chaos.kills >= ROUNDS
    assert chaos.set_rounds >= ROUNDS // 3, "there was something to put back"
