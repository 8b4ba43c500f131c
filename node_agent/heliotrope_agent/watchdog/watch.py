"""The watchdog: puts everything back when the signs of life of whoever has the GPUs stop.

That is the node's agent, or a calibration, which leaves the same signs. It acts in this order. It takes the lock, or
finds that the silent process has it. That one it kills if it can see it, so that it cannot write any more, even if it
is hung in the driver or was stopped. It raises the fence, for a process in another namespace that cannot be seen. Then
it puts back what is in the file of originals, and forgets it.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heliotrope_agent.control.restore import Restored, Result, devices_in_time, put_back_all, to_defaults
from heliotrope_agent.driver.interface import Driver
from heliotrope_agent.errors import AnotherAgentError, CorruptStateError, DriverError, StateError
from heliotrope_agent.state import heartbeat
from heliotrope_agent.state.boot import ProcessId, kill, lives, visible
from heliotrope_agent.state.fence import Fence
from heliotrope_agent.state.heartbeat import Beat, Heartbeat
from heliotrope_agent.state.lock import Lock, LockHolder, Role
from heliotrope_agent.state.records import Levels, Ownership
from heliotrope_agent.state.store import Store

_logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 300.0
_DEATH_S = 2.0
"""How long a killed process may take to let go of its lock."""
_DEATH_STEP_S = 0.02
_WATCHED = frozenset({Role.AGENT, Role.CALIBRATE})
"""Whose silence counts. A human's restoring and another watchdog leave no signs of life, and are soon done."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a watchdog works with; times in seconds."""

    folder: Path
    """The agent's state folder."""
    driver: Callable[[], Driver]
    """Connects to the driver; raises DriverError."""
    boot_id: str
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    silent_s: float
    """Without a sign of life for so long the agent counts as dead or hung."""
    restore_s: float
    """How long the driver may take."""
    defaults_s: float
    """How much longer an agent may be silent before GPUs whose originals are lost go to their defaults."""
    resting: Levels = Levels()  # noqa: RUF009 - frozen
    """Clock locks that GPUs have at rest."""


class Watchdog:
    """Looks at one agent's signs of life; used by one thread."""

    def __init__(self, watch: Watch, own: Heartbeat) -> None:
        self._watch = watch
        self._own = own
        self._driver: Driver | None = None
        self._seen: Beat | None = None
        self._seen_at_s = self._looked_at_s = watch.clock()
        self._said: str | None = None
        self._failures = 0
        self._unforgotten: frozenset[Ownership] = frozenset()
        """Put back, and still on a disk that refuses. To put them back again might undo what somebody has set since."""
        self._not_before_s = float("-inf")
        self._read = Store(watch.folder)
        self._remembered: tuple[Ownership, ...] = ()
        """Of the file when it was there last: with the folder somebody may remove what is to be put back."""

    def look(self) -> tuple[Restored, ...]:
        """Look once; if the agent is silent and has left something, put it back."""
        watch = self._watch
        self._own.beat()
        self._remember()
        silent_s = self.silent_for_s()
        if silent_s < watch.silent_s or watch.clock() < self._not_before_s:
            return ()
        try:
            store = Store(watch.folder)
            records = tuple(store.load().values())
        except CorruptStateError as error:
            if silent_s < watch.silent_s + watch.defaults_s:
                return ()
            return self._take_over(None, str(error))
        except StateError as error:
            self._say(f"nothing can be put back: {error}")
            return ()
        records = records or (self._remembered if store.absent else ())
        if not records:
            return ()
        return self._take_over(records, f"no sign of life for {silent_s:.1f} s")

    def _remember(self) -> None:
        if not self._read.outdated:
            return
        with contextlib.suppress(StateError, CorruptStateError):
            records = tuple(self._read.load().values())
            if not self._read.absent:
                self._remembered = records

    def silent_for_s(self) -> float:
        """How long we have seen no new sign of life of the agent."""
        watch = self._watch
        now_s = watch.clock()
        if now_s - self._looked_at_s > watch.silent_s / 2:
            self._seen_at_s = now_s  # we were stopped ourselves, and so perhaps was the agent
        self._looked_at_s = now_s
        beat = heartbeat.read(watch.folder / heartbeat.AGENT)
        if beat != self._seen:
            self._seen, self._seen_at_s = beat, now_s
        return now_s - self._seen_at_s

    def released(self) -> bool:
        """Whether the agent has put everything back and ended, or there is none."""
        beat = heartbeat.read(self._watch.folder / heartbeat.AGENT)
        if beat is not None and not (visible(beat.process) and not lives(beat.process)):
            return False
        with contextlib.suppress(StateError):
            store = Store(self._watch.folder)
            return not store.load() and not (store.absent and self._remembered)
        return False

    def _take_over(self, records: tuple[Ownership, ...] | None, why: str) -> tuple[Restored, ...]:
        watch = self._watch
        lock = Lock(watch.folder, Role.WATCHDOG, watch.wall_clock)
        fence = Fence(watch.folder)
        if not self._stands_aside(lock):
            return ()
        with contextlib.suppress(OSError):  # a full disk: the kill or the agent's own silence has to do
            fence.raise_()
        try:
            done = self._restore(records, fence, why)
        except DriverError as error:
            self._say(f"nothing can be put back: {error}")
            return ()
        finally:
            lock.release()
        self._own.restores += sum(each.done for each in done)
        well = all(each.done for each in done) and not self._unforgotten
        self._failures = 0 if well else self._failures + 1
        if self._failures:  # each attempt at a driver that hangs leaves a thread behind
            self._not_before_s = watch.clock() + min(2.0**self._failures, _LONGEST_PAUSE_S)
        return done

    def _stands_aside(self, lock: Lock) -> bool:
        """Take the lock, or make sure that the silent one has it: whether anybody else is at work is the question."""
        try:
            lock.take()
        except AnotherAgentError as error:
            other = isinstance(error.holder, LockHolder) and error.holder.role not in _WATCHED
            if other or heartbeat.read(self._watch.folder / heartbeat.AGENT) != self._seen:
                return False  # a human, another watchdog, or a new process, which puts back for itself what it finds
            _logger.warning("%s, and is silent: it is fenced off", error)
            if self._seen is not None and _kill(self._seen.process):
                return self._takes_after_kill(lock)
        except StateError as error:  # a disk without lock and fence: the kill has to do
            if self._seen is not None:
                _kill(self._seen.process)
            _logger.warning("%s", error)
        return True

    def _takes_after_kill(self, lock: Lock) -> bool:
        """Take what a killed process had; False: somebody else was faster, and puts back what it finds."""
        ends_s = time.monotonic() + _DEATH_S
        while time.monotonic() < ends_s:
            try:
                lock.take()
            except AnotherAgentError:
                time.sleep(_DEATH_STEP_S)
            except StateError:
                return True
            else:
                return True
        # A driver's call that cannot be interrupted keeps the dead from going; whoever else came has signs of life.
        return heartbeat.read(self._watch.folder / heartbeat.AGENT) == self._seen

    def _restore(self, records: tuple[Ownership, ...] | None, fence: Fence, why: str) -> tuple[Restored, ...]:
        watch = self._watch
        driver = self._driver = self._driver or watch.driver()
        devices = devices_in_time(driver, watch.restore_s / 2.0, self._own.beat)
        store = Store(watch.folder, fence.check)
        if devices is None:
            self._say("the driver does not tell which GPUs there are: those that are on record are tried all the same")
        if records is None:
            if devices is None:
                return (Restored("every GPU", Result.HANGS, "which ones there are is not known"),)
            touchable = [each for each in devices if not each.mig]
            done = to_defaults(driver, touchable, watch.resting, fence.check, watch.restore_s)
            if all(each.done for each in done):
                store.set_aside()
        else:
            store.load()
            due = [each for each in records if each not in self._unforgotten]
            done = put_back_all(driver, due, watch.boot_id, fence.check, watch.restore_s, self._own.beat)
            failed = {each.uuid for each in done if not each.done}
            gone = frozenset(each for each in records if each.uuid not in failed)
            store.forget(each.uuid for each in gone)
            self._unforgotten = gone if store.stale else frozenset()
            self._remembered = tuple(each for each in self._remembered if each not in gone)
        restored = [each.uuid for each in done if each.done]
        if restored:
            _logger.warning("%s: put back %s", why, ", ".join(restored))
        for each in done:
            if not each.done:
                self._say(f"{each.uuid} could not be put back: {each.problem}")
        return done

    def _say(self, problem: str) -> None:
        if problem != self._said:
            _logger.error("%s", problem)
        self._said = problem


def _kill(process: ProcessId) -> bool:
    killed = kill(process)
    if killed:
        _logger.warning("killed the silent process with pid %d", process.pid)
    return killed
