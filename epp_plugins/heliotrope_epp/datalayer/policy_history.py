"""Which version of the policy is in force since when, and whether a newer one was refused."""

import logging
from dataclasses import replace
from typing import Any

from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.resolve import event_at
from heliotrope_epp.datalayer.world import World

_log = logging.getLogger(__name__)


class PolicyHistory:
    """Follows the worlds that are applied. Owned by the loop's thread."""

    def __init__(self) -> None:
        self._world = World()
        self.since_unix_s: float | None = None
        """When the version in force was applied; None: none is."""
        self.applied = 0
        """Versions that came into force."""
        self.refused = 0
        """Times that a newer version was refused and the last good one stayed."""
        self.removed = 0
        """Times that the policy went without another in its place."""

    @property
    def outdated_because(self) -> str | None:
        """Why the newest version of the policy in force is not used; None: it is."""
        return self._world.policy_outdated_because

    def follow(self, world: World, now_unix_s: float) -> None:
        """A world was applied."""
        before, self._world = self._world, world
        was, now = before.policy, world.policy
        if _version(now) != _version(was):
            self._changed(world, now_unix_s)
        why = world.policy_outdated_because
        if why is not None and why != before.policy_outdated_because:
            self.refused += 1
            assert now is not None, "only a policy in force can be outdated"
            fields = {"policy": now.name, "in_force": now.revision, "why": why}
            _log.warning("a new version of the policy is refused; the last good one stays", extra={"fields": fields})

    def document(self, now_unix_s: float) -> dict[str, Any] | None:
        """For `/debug/state`; None without a policy."""
        policy = self._world.policy
        if policy is None:
            return None
        event = event_at(policy.events, now_unix_s)
        return {
            "name": policy.name,
            "enforce": policy.enforce,
            "revision": policy.revision,
            "since_unix_s": self.since_unix_s,
            "outdated_because": self.outdated_because,
            "classes": [each.name for each in policy.classes],
            "event": None if event is None else event.name,
            "models_withheld_because": None if policy.models is None else policy.models.withheld,
        }

    def _changed(self, world: World, now_unix_s: float) -> None:
        policy = world.policy
        if policy is None:
            self.removed += 1
            self.since_unix_s = None
            _log.info("the policy is gone; the configured picker decides")
            return
        self.applied += 1
        self.since_unix_s = now_unix_s
        fields = {"policy": policy.name, "revision": policy.revision, "enforce": policy.enforce}
        _log.info("policy in force", extra={"fields": fields})


def _version(policy: DecisionPolicy | None) -> DecisionPolicy | None:
    """The policy without its events: planned ones change its revision, those of a source are no version of it."""
    return None if policy is None else replace(policy, events=())
