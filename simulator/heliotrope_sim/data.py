"""Finds the licensed data files that ship with Heliotrope (the repository's `data/`)."""

from pathlib import Path

from heliotrope.errors import HeliotropeError


class DataFileMissingError(HeliotropeError):
    """A data file that ships with Heliotrope is not there."""


def data_file(name: str) -> Path:
    """The path of a file such as `carbon/ES.csv`.

    Raises:
        DataFileMissingError: if neither the installed package nor the repository holds it.
    """
    package = Path(__file__).parent
    for folder in (package / "_data", package.parent.parent / "data"):
        path = folder / name
        if path.is_file():
            return path
    raise DataFileMissingError(f"data file {name} is missing; it ships with the repository and the wheel")
