"""`heliotrope crds`: the custom resource definitions, generated from the types."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from heliotrope.api import crd
from heliotrope.errors import HeliotropeError


class DriftError(HeliotropeError):
    """Generated files differ from what the types give."""


def crds(
    *,
    write: Annotated[bool, Parameter(negative="")] = False,
    check: Annotated[bool, Parameter(negative="")] = False,
    folders: Annotated[tuple[Path, ...], Parameter(name="--folder", negative_iterable="")] = (
        Path("crds"),
        Path("charts/heliotrope/files/crds"),
    ),
) -> None:
    """Print the CRDs as one YAML stream, ready for `kubectl apply -f -`.

    Args:
        write: Write one file per CRD into the folders instead, removing those that no longer exist.
        check: Fail if the files in the folders are not what the types give; changes nothing.
        folders: Where the files are.
    """
    rendered = crd.render()
    if write and check:
        raise DriftError("give --write or --check, not both")
    if not write and not check:
        print("".join(text if text.startswith("---") else f"---\n{text}" for text in rendered.values()), end="")
        return
    stale = [path for folder in folders for path in _differences(folder, rendered)]
    if check:
        if stale:
            raise DriftError(f"not up to date: {', '.join(map(str, stale))}; run: heliotrope crds --write")
        return
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in rendered.items():
            (folder / name).write_text(text, encoding="utf-8")
    for path in stale:
        if path.name not in rendered:
            path.unlink()
    Console(stderr=True).print(f"wrote {len(rendered)} CRDs to {', '.join(map(str, folders))}")


def _differences(folder: Path, rendered: dict[str, str]) -> list[Path]:
    wrong = [
        folder / name
        for name, text in rendered.items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]
    known = set(rendered)
    return wrong + [path for path in sorted(folder.glob("*.yaml")) if path.name not in known]
