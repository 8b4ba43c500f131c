"""The control loop: looks, plans, carries out, reports. The only writer to devices and to the file of originals."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from heliotrope.api.v1alpha1.nodepower import NodePowerStatus
from heliotrope_agent.control.apply import Applier, Outcome
from heliotrope_agent.control.lost_originals import presumed
from heliotrope_agent.control.memory import GpuMemory
from heliotrope_agent.control.metrics import ControlMetrics
from heliotrope_agent.control.news import news
from heliotrope_agent.control.observe import observe
from heliotrope_agent.control.plan import Action, Facts, GpuPlan, Plan, plan
from heliotrope_agent.control.reasons import Cause, Reason
from heliotrope_agent.control.restore import Restored, Result, put_back_all, to_defaults
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.control.status import beating, same, status_of, stopped
from heliotrope_agent.control.unknown_originals import Defaults
from heliotrope_agent.driver.interface import Device, Driver, Reading
from heliotrope_agent.errors import CorruptStateError, DriverError, PodsUnknownError, StateError
from heliotrope_agent.kube.wishes import Cluster, Wishes
from heliotrope_agent.pods.claims import Holder, Owners, Standing
from heliotrope_agent.state.heartbeat import Beat, Heartbeat
from heliotrope_agent.state.records import Levels
from heliotrope_agent.state.store import Store

_logger = logging.getLogger(__name__)

_STATE_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Node:
    """What the loop works with on its node."""

    driver: Driver
    owners: Owners
    cluster: Cluster
    store: Store
    heartbeat: Heartbeat
    check: Callable[[], None]
    """Raises if this process must not write any more."""
    watchdog: Callable[[], Beat | None]
    """The watchdog's last sign of life."""
    boot_id: str
    clock: Callable[[], float]
    wall_clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times of the loop itself, in seconds."""

    restore_s: float = 20.0
    """How long the driver may take to put everything back, at the start and at the end."""
    watchdog_s: float = 15.0
    """A watchdog that gave no sign of life for so long is silent."""
    defaults_s: float = 60.0
    """How long to find out which GPUs may be put to their defaults when originals are lost; then all are."""


class Loop:
    """One look after the other, by one thread."""

    def __init__(
        self, node: Node, rules: Rules, metrics: ControlMetrics, bounds: Bounds, *, predecessor_died: bool = True
    ) -> None:
        """`predecessor_died` says whether the agent before this one ended without a good-bye."""
        self._node = node
        self._rules = rules
        self._metrics = metrics
        self._bounds = bounds
        self._resting = Levels(rules.original_sm_clock_mhz, rules.original_memory_clock_mhz)
        self._applier = Applier(
            node.driver,
            node.store,
            check=node.check,
            boot_id=node.boot_id,
            resting=self._resting,
            wall_clock=node.wall_clock,
        )
        self._memory: dict[str, GpuMemory] = {}
        self._devices: tuple[Device, ...] = ()
        self._plan = Plan()
        self._status: NodePowerStatus | None = None
        self._state_broken_until_s = float("-inf")
        self._started_at_s = node.clock()
        self._defaults: Defaults | None = None
        beat = node.watchdog()
        self._watchdog_restores = 0 if predecessor_died or beat is None else beat.restores
        self._originals_absent = False
        """Whether there was no file of originals at the start, and the status has not been asked instead."""
        self._reported_uid: str | None = None
        self._driver_problem = ""
        metrics.heartbeat_age.set_function(lambda: node.clock() - self._looked_at_s)
        self._looked_at_s = self._started_at_s

    def recover(self) -> tuple[Restored, ...]:
        """Put back what an agent before this one left behind.

        Raises:
            NewerStateError: if a newer version wrote the file of originals.
            StateError: if it cannot be read.
            FencedError: if somebody else took over meanwhile.
        """
        node = self._node
        try:
            records = node.store.load()
        except CorruptStateError as error:
            text = f"{error}; GPUs that Heliotrope may have set go to their driver's defaults"
            self._tell("OriginalsLost", text, warning=True)
            self._defaults = Defaults(self._started_at_s + self._bounds.defaults_s)
            return ()
        self._originals_absent = node.store.absent and not self._rules.dry_run
        if not records or self._rules.dry_run:
            return ()
        done = put_back_all(
            node.driver, records.values(), node.boot_id, node.check, self._bounds.restore_s, node.heartbeat.beat
        )
        self._settle(done, Cause.ORPHAN)
        rebooted = sum(each.result is Result.FORGOTTEN for each in done)
        restored = sum(each.result is Result.RESTORED for each in done)
        if restored:
            text = f"{restored} GPUs were put back that an agent before this one had left set"
            self._tell("OrphansRestored", text, warning=True)
        if rebooted:
            _logger.info("the node has rebooted since %d GPUs were set; nothing of that is left", rebooted)
        return done

    def look(self) -> None:
        """Look once and do what is to be done.

        Raises:
            FencedError: if somebody else took over; nothing must be written any more.
        """
        node = self._node
        node.heartbeat.beat()
        node.check()
        wishes = node.cluster.wishes()
        readings = self._read()
        holders = self._holders(wishes)
        now_s = self._looked_at_s = node.clock()
        self._remember(readings, holders, now_s)
        if self._defaults is not None:
            self._put_to_defaults(self._defaults, wishes, holders, now_s)
        self._flush(now_s)
        if self._originals_absent and wishes.known:
            readings = self._recover_from_status(wishes, readings)
        facts = Facts(
            now_s=now_s,
            devices=self._devices,
            readings=readings,
            holders=holders,
            wishes=wishes,
            owned=node.store.records,
            memory=self._memory,
            blocked=self._blocked(now_s),
        )
        made = plan(facts, self._rules)
        outcomes = self._carry_out(made, readings, now_s)
        self._report(made, facts, outcomes, readings)

    def _recover_from_status(self, wishes: Wishes, readings: Mapping[str, Reading]) -> Mapping[str, Reading]:
        """Put back what the NodePower's status says is set, where no file says so; returns readings after that."""
        node = self._node
        status = None if wishes.node_power is None else wishes.node_power.status
        self._originals_absent = False
        records = presumed(status, readings, self._resting, node.boot_id, node.wall_clock())
        if not records:
            return readings
        text = (
            f"the file of originals is gone: {len(records)} GPUs go back to what the NodePower's status says they were"
        )
        self._tell("OriginalsLost", text, warning=True)
        node.store.settle(records)
        done = put_back_all(node.driver, records, node.boot_id, node.check, self._bounds.restore_s, node.heartbeat.beat)
        self._settle(done, Cause.ORPHAN)
        return self._read()

    def end(self) -> tuple[Restored, ...]:
        """Put everything back; nothing but the driver and the disk is asked.

        Raises:
            FencedError: if somebody else took over.
        """
        node = self._node
        if self._rules.dry_run:
            return ()
        if self._defaults is not None:
            return self._end_in_defaults(self._defaults)
        done = put_back_all(
            node.driver,
            node.store.records.values(),
            node.boot_id,
            node.check,
            self._bounds.restore_s,
            node.heartbeat.beat,
        )
        self._settle(done, Cause.SHUTDOWN)
        return done

    def farewell(self) -> None:
        """Say in the status that the agent has ended; after `end`."""
        if self._status is not None and not self._rules.dry_run:
            now = datetime.fromtimestamp(self._node.wall_clock(), UTC)
            self._node.cluster.report(stopped(self._status, len(self._node.store.records), now))

    def problem(self) -> str | None:
        """Why the loop is not well; None: it is. From any thread."""
        age_s = self._node.clock() - self._looked_at_s
        return f"the control loop has not looked for {age_s:.0f} s" if age_s > self._bounds.watchdog_s else None

    def _read(self) -> Mapping[str, Reading]:
        driver = self._node.driver
        try:
            self._devices = driver.devices()
        except DriverError as error:
            if str(error) != self._driver_problem:
                _logger.warning("the driver does not say which GPUs there are: %s", error)
            self._driver_problem = str(error)
            return {}
        if self._driver_problem:
            _logger.info("the driver answers again")
        self._driver_problem = ""
        readings = {}
        for device in self._devices:
            try:
                readings[device.uuid] = driver.read(device.uuid)
            except DriverError as error:
                _logger.debug("%s cannot be read: %s", device.uuid, error)
            self._node.heartbeat.beat()
        return readings

    def _holders(self, wishes: Wishes) -> Mapping[str, Holder] | None:
        intents = () if wishes.node_power is None else wishes.node_power.spec.intents
        try:
            return self._node.owners.holders(intents)
        except (PodsUnknownError, DriverError) as error:
            _logger.debug("owners are unknown: %s", error)
            return None

    def _remember(self, readings: Mapping[str, Reading], holders: Mapping[str, Holder] | None, now_s: float) -> None:
        present = {each.uuid for each in self._devices} | set(self._node.store.records)
        self._memory = {uuid: each for uuid, each in self._memory.items() if uuid in present}
        for uuid in present:
            memory = self._memory.get(uuid, GpuMemory())
            holder = None if holders is None else holders.get(uuid)
            if holder is not None and holder.standing is not Standing.UNVERIFIED:
                memory = replace(memory, verified_at_s=now_s)
            if uuid in readings:
                memory = observe(memory, self._node.store.records.get(uuid), readings[uuid], now_s, self._rules)
            self._memory[uuid] = memory

    def _blocked(self, now_s: float) -> Reason | None:
        if self._rules.dry_run:
            return Reason.DRY_RUN
        if self._defaults is not None or self._node.store.stale or now_s < self._state_broken_until_s:
            return Reason.STATE_UNWRITABLE
        beat = self._node.watchdog()
        age_s = float("inf") if beat is None else beat.age_s(now_s, self._node.boot_id)
        self._metrics.watchdog_age.set(age_s)
        self._hear_watchdog(beat)
        if self._rules.require_watchdog and age_s > self._bounds.watchdog_s:
            return Reason.NO_WATCHDOG
        return None

    def _hear_watchdog(self, beat: Beat | None) -> None:
        if beat is None:
            return
        self._metrics.watchdog_restores.set(beat.restores)
        if beat.restores > self._watchdog_restores:
            text = f"the watchdog has put back {beat.restores} GPUs in a dead or silent agent's place since it started"
            self._tell("WatchdogRestored", text, warning=True)
        self._watchdog_restores = beat.restores

    def _flush(self, now_s: float) -> None:
        if self._node.store.stale and now_s >= self._state_broken_until_s:
            try:
                self._node.store.flush()
            except StateError as error:
                self._broken(error, now_s)

    def _broken(self, error: StateError, now_s: float) -> None:
        if now_s >= self._state_broken_until_s + _STATE_RETRY_S:
            _logger.error("%s", error)
        self._state_broken_until_s = now_s + _STATE_RETRY_S

    def _carry_out(self, made: Plan, readings: Mapping[str, Reading], now_s: float) -> tuple[Outcome, ...]:
        outcomes: list[Outcome] = []
        for each in made.doing(Action.RELEASE):
            if not self._rules.dry_run:
                outcomes.append(self._applier.release(each))
                self._node.heartbeat.beat()
        for group in made.groups(Action.SET):
            try:
                outcomes.extend(self._applier.set_group(group, readings))
            except StateError as error:
                self._broken(error, now_s)
                outcomes.extend(Outcome(each, Reason.STATE_UNWRITABLE, str(error)) for each in group)
                break
            self._node.heartbeat.beat()
        for outcome in outcomes:
            self._learn(outcome)
        return tuple(outcomes)

    def _learn(self, outcome: Outcome) -> None:
        uuid, now_s = outcome.plan.uuid, self._node.clock()
        memory = self._memory.get(uuid, GpuMemory())
        if outcome.problem is Reason.STATE_UNWRITABLE:
            return
        if outcome.unsupported - memory.unsupported:
            memory = memory.without(outcome.unsupported, stranded=outcome.stranded)
        elif outcome.problem is not None:
            wait_s = self._rules.retry_after_s(memory.failures + 1)
            memory = memory.failed(now_s, outcome.problem, wait_s, stranded=outcome.stranded)
        elif outcome.plan.action is Action.RELEASE:
            memory = memory.released(now_s)
        else:
            memory = memory.changed(now_s, lowered=outcome.plan.lowers)
        self._memory[uuid] = memory

    def _report(self, made: Plan, facts: Facts, outcomes: Sequence[Outcome], readings: Mapping[str, Reading]) -> None:
        before = self._plan
        after = replace(facts, owned=self._node.store.records, readings=self._reread(outcomes, readings))
        problems = {each.plan.uuid: each.problem for each in outcomes if each.problem is not None}
        made = Plan(tuple(_with(each, problems.get(each.uuid)) for each in made.gpus))
        first = frozenset(set(after.owned) - set(facts.owned))
        for each in news(before, made, outcomes, first):
            self._tell(each.reason, each.message, warning=each.warning)
        self._metrics.looked(before, made, tuple(outcomes), len(after.owned))
        self._metrics.state_writable.set(facts.blocked is not Reason.STATE_UNWRITABLE)
        self._plan = made
        power = facts.wishes.node_power
        uid = None if power is None else power.metadata.uid
        if power is None or uid != self._reported_uid:
            self._status, self._reported_uid = None, uid
        if power is None:
            return
        previous = self._status if self._status is not None else power.status
        now = datetime.fromtimestamp(self._node.wall_clock(), UTC)
        status = beating(status_of(made, after, self._rules, previous, now), previous, now)
        beats = previous is None or previous.heartbeat_time != status.heartbeat_time
        if (beats or not same(previous, status)) and not self._rules.dry_run:
            self._node.cluster.report(status)
        self._status = status

    def _tell(self, reason: str, message: str, *, warning: bool) -> None:
        """An event, and the same in the log."""
        _logger.log(logging.WARNING if warning else logging.INFO, "%s: %s", reason, message)
        if not self._rules.dry_run:
            self._node.cluster.event(reason, message, warning=warning)

    def _reread(self, outcomes: Sequence[Outcome], readings: Mapping[str, Reading]) -> Mapping[str, Reading]:
        """Readings after what was changed."""
        found = dict(readings)
        for outcome in outcomes:
            try:
                found[outcome.plan.uuid] = self._node.driver.read(outcome.plan.uuid)
            except DriverError:
                found.pop(outcome.plan.uuid, None)
        return found

    def _settle(self, done: Sequence[Restored], cause: Cause) -> None:
        """Forget what was put back, and say what was not."""
        now_s = self._node.clock()
        gone = [each.uuid for each in done if each.done]
        if gone:
            self._node.store.forget(gone)
            self._metrics.releases.labels(cause.value).inc(len(gone))
        for each in done:
            if each.done:
                self._memory[each.uuid] = self._memory.get(each.uuid, GpuMemory()).released(now_s)
            else:
                _logger.error("%s could not be put back: %s", each.uuid, each.problem)
                self._metrics.release_failures.labels(Reason.DRIVER_ERROR.value).inc()
                # Before anything new: its record may be of an agent, or a boot, before this one.
                self._memory[each.uuid] = replace(self._memory.get(each.uuid, GpuMemory()), stranded=True)

    def _put_to_defaults(
        self, defaults: Defaults, wishes: Wishes, holders: Mapping[str, Holder] | None, now_s: float
    ) -> None:
        """Do what can be done without originals; end with an empty file once all is done."""
        if self._rules.dry_run:
            return
        due = defaults.due(self._devices, holders if wishes.known else None, now_s)
        done = to_defaults(self._node.driver, due, self._resting, self._node.check, self._bounds.restore_s)
        for each in done:
            if not each.done:
                _logger.error("%s could not be put to its defaults: %s", each.uuid, each.problem)
        self._defaults = defaults = defaults.after(each.uuid for each in done if each.done)
        if not defaults.finished(self._devices, holders if wishes.known else None, now_s):
            return
        try:
            self._node.store.set_aside()
        except StateError as error:
            self._broken(error, now_s)
            return
        self._defaults = None
        left = sorted({each.uuid for each in self._devices} - defaults.done)
        text = f"{len(defaults.done)} GPUs were put to their driver's defaults; the corrupt files are kept beside"
        if left:
            text += (
                "; left alone, since they are partitioned or no intent names who has them (if they are slow, stop the "
                f"agent and run heliotrope agent --restore --defaults): {', '.join(left)}"
            )
        self._tell("DefaultsRestored", text, warning=True)

    def _end_in_defaults(self, defaults: Defaults) -> tuple[Restored, ...]:
        due = [each for each in self._devices if not each.mig and each.uuid not in defaults.done]
        done = to_defaults(self._node.driver, due, self._resting, self._node.check, self._bounds.restore_s)
        if all(each.done for each in done):
            try:
                self._node.store.set_aside()
            except StateError as error:
                _logger.warning("%s", error)
        return done


def _with(made: GpuPlan, problem: Reason | None) -> GpuPlan:
    return made if problem is None else replace(made, reasons=tuple(sorted({*made.reasons, problem})))
