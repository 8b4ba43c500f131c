"""A file in place of the kubelet: who has which GPU on a machine without a cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from heliotrope.api.v1alpha1.nodepower import PowerIntent
from heliotrope_agent.driver.interface import Driver
from heliotrope_agent.errors import PodsUnknownError
from heliotrope_agent.pods.claims import Claim, Holder, PodName, Standing

GPUS = "gpus.yaml"
_MAX_BYTES = 256 * 1024


class FolderOwners:
    """Implements `Owners` from `gpus.yaml`, for which whoever runs the machine vouches.

    It says `gpus: {GPU-5d2e…: {namespace: default, pod: prefill-0}}`; a GPU that it does not name is free.
    """

    def __init__(self, folder: Path, driver: Driver) -> None:
        self._path = folder / GPUS
        self._driver = driver
        self._seen: tuple[tuple[int, int, int], Mapping[str, PodName]] | None = None

    def holders(self, intents: Sequence[PowerIntent]) -> Mapping[str, Holder]:
        """By UUID, for every GPU of the node.

        Raises:
            PodsUnknownError: if the file is not there or cannot be read.
            DriverError: if the driver cannot tell which GPUs there are.
        """
        pods = self._read()
        named = {PodName(intent.namespace, pod.name) for intent in intents for pod in intent.pods}
        found = {}
        for device in self._driver.devices():
            pod = pods.get(device.uuid)
            if device.mig:
                found[device.uuid] = Holder(Standing.MIG)
            elif pod is None:
                found[device.uuid] = Holder(Standing.FREE)
            else:
                found[device.uuid] = Holder(Standing.ELIGIBLE if pod in named else Standing.FOREIGN_OWNER, pod)
        return found

    def recent_claims(self, max_age_s: float = 0.5) -> Mapping[str, tuple[Claim, ...]]:  # noqa: ARG002 - files are always recent
        """What the file gives away, by UUID.

        Raises:
            PodsUnknownError: as `holders`.
        """
        return {uuid: (Claim(pod, "engine", uuid),) for uuid, pod in self._read().items()}

    def _read(self) -> Mapping[str, PodName]:
        try:
            stat = self._path.stat()
            stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if self._seen is None or self._seen[0] != stamp:
                self._seen = stamp, _parsed(yaml.safe_load(_content(self._path)))
        except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
            raise PodsUnknownError(f"{self._path} does not tell who has which GPU: {error}") from error
        return self._seen[1]


def _content(path: Path) -> bytes:
    if not path.is_file():  # a pipe would be waited for without end
        raise PodsUnknownError(f"{path} is not a file")
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:  # half of it would be another answer
        raise PodsUnknownError(f"{path} is longer than {_MAX_BYTES} bytes")
    return content


def _parsed(document: Any) -> Mapping[str, PodName]:
    try:
        found = {uuid: PodName(each["namespace"], each["pod"]) for uuid, each in document["gpus"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise PodsUnknownError(
            f"{GPUS} must say `gpus: {{UUID: {{namespace: NAMESPACE, pod: NAME}}}}` ({type(error).__name__}: {error})"
        ) from error
    strings = (text for uuid, pod in found.items() for text in (uuid, pod.namespace, pod.name))
    if not all(isinstance(each, str) for each in strings):
        raise PodsUnknownError(f"{GPUS}: UUIDs, namespaces and pods must be strings")
    return found
