"""`heliotrope explain`: why a request went where it went."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from heliotrope.decide import recorded
from heliotrope.errors import InvalidInputError
from heliotrope_cli import explain_region, picker_client
from heliotrope_cli.explain_tables import tables
from heliotrope_cli.explain_text import sentences
from heliotrope_cli.output import show


def explain(
    request_id: str | None = None,
    /,
    *,
    picker: str = "http://127.0.0.1:9090",
    file: Annotated[Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show every endpoint that a request might have gone to, what it would have cost there, and why each lost.

    Asks a running picker for one of its newest decisions, or reads one from a file. To keep a decision, redirect
    --json into a file. A region scheduler tells which region it chose, and how.

    Args:
        request_id: The x-request-id of the request.
        picker: Address of the picker's metrics port.
        file: Read this recorded decision instead; - is standard input.
        as_json: Print the document itself.
    """
    if (request_id is None) == (file is None):
        raise InvalidInputError("", "give a request id, or --file with a recorded decision")
    if file is not None:
        name, text = ("standard input" if str(file) == "-" else str(file)), _contents(file)
    else:
        assert request_id is not None
        name, text = picker, picker_client.decision(picker, request_id)
    try:
        placement = explain_region.read(text)
        if placement is not None:
            _show_placement(*placement, as_json=as_json)
            return
        record, document = recorded.read(text)
    except InvalidInputError as error:
        where = f"{name}: {error.path}" if error.path else name
        raise InvalidInputError(where, error.problem) from error
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    show(sentences(record), tables(record))


def _show_placement(placement: explain_region.RegionPlacement, document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(explain_region.sentences(placement), ())


def _contents(file: Path) -> bytes:
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(recorded.MAX_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(recorded.MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInputError("--file", f"cannot be read: {error}") from error
