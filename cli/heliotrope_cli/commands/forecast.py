"""`heliotrope forecast`: what regions' grids will be like, and when they are cleanest."""

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import track

from heliotrope.carbon.forecast.method import HORIZON_HOURS
from heliotrope.errors import InvalidInputError
from heliotrope_cli import forecast_text
from heliotrope_cli.forecast_text import Wanted
from heliotrope_cli.output import show
from heliotrope_cli.region_forecasts import learned, published
from heliotrope_cli.region_profiles import chosen, of_cluster, of_folder


def forecast(
    *regions: str,
    folder: Path | None = None,
    kubeconfig: Path | None = None,
    hours: float = 4.0,
    within: float = 24.0,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show what the regions' carbon intensity is expected to be, and the cleanest window.

    Of a cluster it shows what the operator publishes in the RegionProfiles. Of a folder it asks the sources itself and
    learns from their past at once, which takes about a second a region. The error is the mean absolute one, beside
    that of "as at the same hour yesterday".

    Args:
        regions: Names of RegionProfiles; all without any.
        folder: Folder of resources, instead of a cluster.
        kubeconfig: Kubeconfig; by default the service account in a cluster, else the user's own.
        hours: Length of the window that is looked for.
        within: The window has ended so many hours from now.
        as_json: Print one JSON document with every point instead.
    """
    if not 0.0 < hours <= HORIZON_HOURS:
        raise InvalidInputError("--hours", f"{hours:g} is not above 0 and at most {HORIZON_HOURS}")
    if not hours <= within <= HORIZON_HOURS:
        raise InvalidInputError("--within", f"{within:g} is not between --hours ({hours:g}) and {HORIZON_HOURS}")
    if folder is not None and kubeconfig is not None:
        raise InvalidInputError("--folder", "give --folder or --kubeconfig, not both")
    profiles = chosen(of_cluster(kubeconfig) if folder is None else of_folder(folder), regions)
    wanted = Wanted(time.time(), hours, within)
    if folder is None:
        found = [published(profile, wanted.now_unix_s) for profile in profiles]
    else:
        console = Console(stderr=True)
        quiet = not console.is_terminal
        asked = track(profiles, "regions", console=console, transient=True, disable=quiet)
        found = [asyncio.run(learned(profile, folder, wanted.now_unix_s)) for profile in asked]
    if as_json:
        print(json.dumps(forecast_text.document(found, wanted), indent=2, allow_nan=False))
        return
    if not found:
        show(["the cluster has no RegionProfile"], [])
        return
    show(forecast_text.sentences(found), [forecast_text.table(found, wanted)])
