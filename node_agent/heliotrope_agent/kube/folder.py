"""A folder in place of an API server: the NodePower in YAML files, status and events beside it.

For GPU machines without a cluster. Files are looked at several times a second; what cannot be read leaves the last wish
that could in force, and is said once.
"""

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from heliotrope.api import documents
from heliotrope.api.scalars import format_time
from heliotrope.api.v1alpha1.common import API_VERSION
from heliotrope.api.v1alpha1.nodepower import NodePower, NodePowerStatus
from heliotrope.errors import InvalidInputError
from heliotrope_agent.kube.wishes import Wishes

_logger = logging.getLogger(__name__)

LEASE = "lease"
STATUS = "status"
POLL_S = 0.2
_MAX_BYTES = 1024 * 1024
_MAX_EVENT_BYTES = 1024 * 1024

_Stamp = Mapping[str, tuple[int, int, int]]
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FolderCluster:
    """Implements `heliotrope_agent.kube.wishes.Cluster`."""

    def __init__(
        self,
        folder: Path,
        node: str,
        *,
        lease_s: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        changed: Callable[[], None],
        poll_s: float = POLL_S,
    ) -> None:
        """Nothing is read before `start`.

        Args:
            folder: with `*.yaml` files, one of which holds the NodePower named like the node.
            node: its name.
            lease_s: how long a change of the file `lease` keeps wishes alive; 0: they need none.
            clock: the agent's.
            wall_clock: unix seconds.
            changed: called from another thread after each new wish.
            poll_s: time between looks.
        """
        self._folder = folder
        self._node = node
        self._lease_s = lease_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._changed = changed
        self._poll_s = poll_s
        self._wishes = Wishes(lease_until_s=-math.inf if lease_s else math.inf)
        self._stamp: _Stamp | None = None
        self._lease: tuple[int, int, int] | None = None
        self._lease_known = False
        self._generation = 0
        self._problem = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="folder", daemon=True)

    def start(self) -> None:
        """Read for the first time, and follow."""
        self._look()
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Follow no more."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def wishes(self) -> Wishes:
        """What is known now."""
        return self._wishes

    def report(self, status: NodePowerStatus) -> None:
        """Write the status to `status/NODE.yaml`."""
        document = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        path = self._folder / STATUS / f"{self._node}.yaml"
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(exist_ok=True)
            new.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
            new.rename(path)
        except OSError as error:
            _logger.warning("the status cannot be written to %s: %s", path, error)

    def event(self, reason: str, message: str, *, warning: bool) -> None:
        """Append a line to `status/NODE.events.jsonl`; what is older than the last two megabytes goes."""
        path = self._folder / STATUS / f"{self._node}.events.jsonl"
        line = {
            "time": format_time(datetime.fromtimestamp(self._wall_clock(), UTC)),
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message,
        }
        try:
            path.parent.mkdir(exist_ok=True)
            if path.exists() and path.stat().st_size > _MAX_EVENT_BYTES:
                path.rename(path.with_suffix(".jsonl.old"))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            _logger.warning("an event cannot be written to %s: %s", path, error)

    def _follow(self) -> None:
        while not self._ended.wait(self._poll_s):
            self._look()

    def _look(self) -> None:
        try:
            news = self._look_at_lease()
            news = self._look_at_files() or news
        except (OSError, InvalidInputError, yaml.YAMLError, ValueError, RecursionError) as error:
            # ValueError: bytes that are no text, or a date that is none; RecursionError: an alias of itself.
            if str(error) != self._problem:
                _logger.warning("%s cannot be read, the last wish stays in force: %s", self._folder, error)
            self._problem = str(error)
            return
        self._problem = ""
        if news:
            self._changed()

    def _look_at_files(self) -> bool:
        files = sorted(self._folder.glob("*.yaml"))
        stamp = {str(path): _stamp(path) for path in files}
        if stamp == self._stamp:
            return False
        found = None
        for path in files:
            for document in yaml.load_all(_text(path), Loader=_LOADER):
                if _is_ours(document):
                    power = documents.parse(document)
                    if isinstance(power, NodePower) and power.metadata.name == self._node:
                        found = power
        self._stamp = stamp
        before = self._wishes.node_power
        if found is not None and not self._wishes.known:
            found = found.model_copy(update={"status": self._status()})
        if self._wishes.known and _spec(found) == _spec(before):
            return False
        self._generation += 1
        if found is not None:
            metadata = found.metadata.model_copy(update={"generation": self._generation})
            found = found.model_copy(update={"metadata": metadata})
        self._wishes = replace(self._wishes, node_power=found, known=True)
        return True

    def _status(self) -> NodePowerStatus | None:
        """What an agent before this one has reported; None: nothing that can be read."""
        path = self._folder / STATUS / f"{self._node}.yaml"
        try:
            found = next(yaml.load_all(_text(path), Loader=_LOADER), None) if path.exists() else None
            about = {"apiVersion": API_VERSION, "kind": NodePower.__name__, "metadata": {"name": self._node}}
            power = documents.parse(about | {"spec": {}, "status": found or {}}, unknown_fields="ignore")
            return power.status if found and isinstance(power, NodePower) else None
        except (OSError, ValueError, yaml.YAMLError, InvalidInputError, RecursionError) as error:
            _logger.warning("%s cannot be read: %s", path, error)
            return None

    def _look_at_lease(self) -> bool:
        if not self._lease_s:
            return False
        path = self._folder / LEASE
        lease = _stamp(path) if path.exists() else None
        changed = lease is not None and lease != self._lease and self._lease_known
        # What is there at the first look may be of any age.
        self._lease, self._lease_known = lease, True
        if changed:
            self._wishes = replace(self._wishes, lease_until_s=self._clock() + self._lease_s)
        return changed


def _spec(power: NodePower | None) -> object:
    return None if power is None else power.spec


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _text(path: Path) -> str:
    if not path.is_file():  # a pipe would be waited for without end
        raise InvalidInputError(str(path), "is not a file")
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidInputError(str(path), f"is longer than {_MAX_BYTES} bytes")
    return data.decode()


def _is_ours(document: object) -> bool:
    return (
        isinstance(document, dict)
        and document.get("apiVersion") == API_VERSION
        and document.get("kind") == NodePower.__name__
    )
