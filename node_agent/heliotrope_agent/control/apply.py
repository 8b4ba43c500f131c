"""Carries a plan out: first on disk, then on the device, then read back; a group as a whole or not at all."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from heliotrope_agent.control.plan import GpuPlan
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.control.restore import put_back, put_back_after_reboot, turn_watched
from heliotrope_agent.driver.interface import Driver, Reading
from heliotrope_agent.errors import DeniedError, DriverError, UnsupportedError
from heliotrope_agent.state.records import Knob, Levels, Ownership
from heliotrope_agent.state.store import Store

_logger = logging.getLogger(__name__)


class NotEffectiveError(DriverError):
    """The driver took a setting and reads back another."""


class KnobUnsupportedError(UnsupportedError):
    """A device refuses to turn one of its knobs."""

    def __init__(self, problem: str, knob: Knob) -> None:
        super().__init__(problem)
        self.knob = knob


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the plan of one GPU."""

    plan: GpuPlan
    problem: Reason | None = None
    """None: it was carried out."""
    message: str = ""
    stranded: bool = False
    """Whether something was done that could not be undone."""
    unsupported: frozenset[Knob] = frozenset()
    """Knobs that some device of the group refuses to turn."""


class Applier:
    """The only writer to devices while the agent runs; used by one thread."""

    def __init__(
        self,
        driver: Driver,
        store: Store,
        *,
        check: Callable[[], None],
        boot_id: str,
        resting: Levels,
        wall_clock: Callable[[], float],
    ) -> None:
        """Make one.

        Args:
            driver: of the node.
            store: the file of originals.
            check: called before each write to a device; raises if this process must not write any more.
            boot_id: of this boot.
            resting: clock locks that the administrator says GPUs have at rest.
            wall_clock: unix seconds.
        """
        self._driver = driver
        self._store = store
        self._check = check
        self._boot_id = boot_id
        self._resting = resting
        self._wall_clock = wall_clock

    def release(self, plan: GpuPlan) -> Outcome:
        """Put one GPU back, and forget it once it is.

        Raises:
            FencedError: if this process must not write any more.
        """
        owned = self._store.records[plan.uuid]
        try:
            if owned.boot_id == self._boot_id:
                put_back(self._driver, owned, self._check, left=plan.left)
            else:
                put_back_after_reboot(self._driver, owned, self._check)
        except DriverError as error:
            return Outcome(plan, _reason(error), str(error))
        self._store.forget([plan.uuid])
        return Outcome(plan)

    def set_group(self, plans: Sequence[GpuPlan], readings: Mapping[str, Reading]) -> tuple[Outcome, ...]:
        """Set all GPUs of a group, or none.

        Args:
            plans: of the group, all with `Action.SET`.
            readings: by UUID, taken before anything was changed.

        Raises:
            FencedError: if this process must not write any more.
            StateError: if what is to be done cannot be written down first; then nothing was done.
        """
        before = dict(self._store.records)
        after = before | {each.uuid: self._record(each, before.get(each.uuid), readings[each.uuid]) for each in plans}
        self._store.save(after.values())
        turned: dict[str, set[Knob]] = {}
        for plan in plans:
            try:
                self._set(after[plan.uuid], before.get(plan.uuid), turned.setdefault(plan.uuid, set()))
            except DriverError as error:
                return self._undone(plans, turned, before, after, error)
        return tuple(Outcome(each) for each in plans)

    def _record(self, plan: GpuPlan, present: Ownership | None, reading: Reading) -> Ownership:
        assert plan.levels is not None
        assert plan.pod is not None
        if present is not None:
            return replace(present, set=plan.levels, touched=present.touched | plan.levels.knobs())
        return Ownership(
            uuid=plan.uuid,
            original=replace(self._resting, power_limit_milliwatts=reading.power_limit_milliwatts),
            set=plan.levels,
            touched=plan.levels.knobs(),
            namespace=plan.pod.namespace,
            pod=plan.pod.name,
            pod_uid=plan.pod_uid,
            since_unix_s=self._wall_clock(),
            boot_id=self._boot_id,
        )

    def _set(
        self, record: Ownership, before: Ownership | None, turned: set[Knob], knobs: Collection[Knob] = frozenset(Knob)
    ) -> None:
        """Turn each knob to its level, and those that have none any more back; `turned` gets those that may have."""
        was = Levels() if before is None else before.set
        for knob in Knob:
            if knob not in knobs:
                continue
            level = record.set.of(knob)
            if level is None and was.of(knob) is None:
                continue
            turned.add(knob)
            target = record.original.of(knob) if level is None else level
            try:
                turn_watched(self._driver, record, knob, target, self._check)
            except DeniedError:
                turned.discard(knob)  # a refusal changes nothing
                raise
            except UnsupportedError as error:
                turned.discard(knob)
                raise KnobUnsupportedError(str(error), knob) from error
            if knob is Knob.POWER_LIMIT and level is not None:
                found = self._driver.read(record.uuid).power_limit_milliwatts
                if found != level:
                    raise NotEffectiveError(f"{record.uuid}: the power limit is {found} mW after {level} mW was set")

    def _undone(
        self,
        plans: Sequence[GpuPlan],
        turned: Mapping[str, set[Knob]],
        before: Mapping[str, Ownership],
        after: Mapping[str, Ownership],
        error: DriverError,
    ) -> tuple[Outcome, ...]:
        """Take back what was begun of a group; what cannot be taken back stays on disk, to be put back later."""
        stranded = set[str]()
        for uuid, knobs in reversed(list(turned.items())):
            try:
                if not knobs:
                    continue
                if uuid in before:
                    self._set(replace(after[uuid], set=before[uuid].set), after[uuid], set(), knobs)
                else:
                    put_back(self._driver, after[uuid], self._check, left=frozenset(Knob) - knobs)
            except DriverError as again:
                _logger.warning("%s: what was begun could not be taken back: %s", uuid, again)
                stranded.add(uuid)
        kept = dict(before) | {uuid: after[uuid] for uuid in stranded}
        self._store.settle(kept.values())
        problem, message = _reason(error), str(error)
        refused = frozenset({error.knob}) if isinstance(error, KnobUnsupportedError) else frozenset()
        return tuple(Outcome(each, problem, message, each.uuid in stranded, refused) for each in plans)


def _reason(error: DriverError) -> Reason:
    match error:
        case DeniedError():
            return Reason.DENIED
        case UnsupportedError():
            return Reason.UNSUPPORTED
        case NotEffectiveError():
            return Reason.NOT_EFFECTIVE
        case _:
            return Reason.DRIVER_ERROR
