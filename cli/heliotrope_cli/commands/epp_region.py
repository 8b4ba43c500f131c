"""`heliotrope epp --tier region`: the picker in front of the clusters' gateways."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs

if TYPE_CHECKING:
    from heliotrope_epp.region.config import RegionTier
    from heliotrope_epp.region.settings import RegionSettings
    from heliotrope_epp.serving import Ports


def read_regions(path: Path | None) -> "RegionTier":
    """The regions' file.

    Raises:
        InvalidInputError: if it is missing or wrong; the message has file and key.
    """
    with needs("epp"):
        from heliotrope_epp.region.config import read
    if path is None:
        raise InvalidInputError("--regions", "is needed with --tier region: a file that names the regions")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("--regions", f"cannot be read: {error}") from error
    try:
        return read(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error.path}" if error.path else str(path), error.problem) from error


def refuse_endpoint_flags(given: Mapping[str, object]) -> None:
    """Flags that only an endpoint picker understands.

    Raises:
        InvalidInputError: names the first that was given.
    """
    for name, value in given.items():
        if value is not None:
            raise InvalidInputError(name, "has no use with --tier region; what it has instead is in the --regions file")


def run_region(settings: "RegionSettings", announce: "Callable[[Ports], None] | None") -> None:
    """Run it until it is told to stop; errors as `heliotrope_epp.region.app.run`."""
    with needs("epp"):
        from heliotrope_epp.region.app import run
    run(settings, announce)
