"""Where a picker's resources and carbon signals come from: a watched folder, or the Kubernetes API."""

from collections.abc import Callable, Mapping
from pathlib import Path

from heliotrope.carbon.signal import CarbonSignal
from heliotrope.errors import InvalidInputError
from heliotrope.providers.online import Online
from heliotrope.providers.secrets_folder import SecretsFolder
from heliotrope_epp.datalayer.folder import FolderSource
from heliotrope_epp.datalayer.resources import Source
from heliotrope_epp.datalayer.signals import PolledSignals, PublishedSignals, SignalBook
from heliotrope_epp.plugins.datalayer import FileDiscoveryParameters
from heliotrope_epp.settings import KubernetesSettings


def sources(
    folder: Path | None,
    kubernetes: KubernetesSettings | None,
    changed: Callable[[Mapping[str, CarbonSignal]], None],
    *,
    clock: Callable[[], float],
    discovery: FileDiscoveryParameters | None = None,
    endpoints: bool = True,
    secrets: Path | None = None,
) -> tuple[Source, SignalBook]:
    """The source and its book of signals.

    Args:
        folder: of YAML files; exactly one of it and `kubernetes` is given.
        kubernetes: the pool.
        changed: told of new signals.
        clock: Unix seconds.
        discovery: names the file of endpoints and says whether it is watched.
        endpoints: whether a folder must list endpoints.
        secrets: a folder with a folder for each Secret that RegionProfiles in `folder` name, with a file for each key.

    Raises:
        InvalidInputError: if both are given, or neither.
    """
    if (folder is None) == (kubernetes is None):
        raise InvalidInputError("", "give either a folder of resources or the name of an InferencePool")
    if kubernetes is not None:
        # Its client takes a second to import, which whoever has no cluster need not wait for.
        from heliotrope_epp.datalayer.kubernetes.connection import Connection
        from heliotrope_epp.datalayer.kubernetes.source import KubernetesSource

        return (
            KubernetesSource(kubernetes.pool, Connection(kubeconfig=kubernetes.kubeconfig)),
            PublishedSignals(changed, clock=clock),
        )
    assert folder is not None
    source = FolderSource(
        folder,
        endpoints_file=None if discovery is None else Path(discovery.path),
        watch_endpoints=discovery is None or discovery.watch_file,
        endpoints_required=endpoints,
    )
    online = Online(SecretsFolder(secrets))
    return source, PolledSignals(changed, folder=folder, online=online, clock=clock)
