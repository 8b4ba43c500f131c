"""Where the parts of a study run, and what is kept of them: for `reproduce` and `simulate`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from heliotrope.errors import HeliotropeError
from heliotrope_cli.commands.extras import needs

if TYPE_CHECKING:
    from heliotrope_sim.reproduce.store import PartStore
    from heliotrope_sim.reproduce.workers import Workers


class StoreUnusableError(HeliotropeError):
    """The folder for finished parts cannot be written."""


@contextmanager
def parts(jobs: int | None, cluster: str | None, *, resume: bool) -> "Iterator[Workers]":
    """Workers for the time of a block; standard error tells what was done before and what is kept.

    Args:
        jobs: processes here; None: as many as there are cores.
        cluster: address of a Dask scheduler that runs the parts instead.
        resume: take parts that are done already from the store; else all are run anew, and kept.

    Raises:
        ExtraMissingError: if a cluster is asked for and its extra is not installed.
        StoreUnusableError: if finished parts cannot be kept.
    """
    with needs("sim"):
        from heliotrope_sim.reproduce.store import PartStore, default_folder
        from heliotrope_sim.reproduce.workers import available_cores, workers
    machines = None
    if cluster is not None:
        with needs("cluster"):
            from heliotrope_sim.reproduce.cluster import connected
        machines = connected(cluster)
    folder = default_folder()
    try:
        store = PartStore(folder, fresh=not resume)
    except OSError as error:
        raise StoreUnusableError(
            f"{folder} cannot be written: {error.strerror or error}; set HELIOTROPE_CACHE to a folder that can"
        ) from error
    console = Console(stderr=True, highlight=False)
    try:
        with workers(available_cores() if jobs is None else jobs, console, store=store, cluster=machines) as pool:
            yield pool
    except KeyboardInterrupt:
        if store.counts.kept or store.counts.reused:
            kept = store.counts.kept + store.counts.reused
            console.print(f"{kept} finished parts are kept; the same command goes on from there", style="dim")
        raise
    _tell(store, console)


def _tell(store: "PartStore", console: Console) -> None:
    counts = store.counts
    if counts.reused:
        total = counts.reused + counts.computed
        console.print(f"{counts.reused} of {total} parts were done before; --fresh runs them again", style="dim")
    if counts.distrusted:
        console.print(f"{counts.distrusted} kept parts were damaged or not ours and were run again", style="dim")
    if counts.not_kept:
        console.print(f"{counts.not_kept} parts could not be kept in {store.folder}", style="dim")
