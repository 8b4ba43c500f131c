"""`heliotrope status`: regions, policies, variants, waiting Jobs, nodes and savings so far, on one page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from heliotrope.carbon import savings as comparison
from heliotrope.errors import HeliotropeError, InvalidInputError
from heliotrope_cli import picker_client, savings_text, status_rows, status_savings, status_text
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.output import PIPED_WIDTH
from heliotrope_cli.status_read import PickerText, of_cluster, of_folder


def status(
    *,
    namespaces: Annotated[tuple[str, ...], Parameter(name="--namespace", negative_iterable="")] = (),
    folder: Path | None = None,
    kubeconfig: Path | None = None,
    pickers: Annotated[tuple[str, ...], Parameter(name="--picker", negative_iterable="")] = (),
    ledger: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show regions, policies, variants, waiting Jobs, nodes' clocks, and what was saved so far.

    Of a cluster it shows what the operator writes into statuses, and asks one picker of each pool, by the API server,
    for the savings since its start. What cannot be read is said, and never counts as nothing.

    Args:
        namespaces: Show what is in this namespace; may be given several times. Regions and nodes belong to none.
        folder: Folder of resources, instead of a cluster.
        kubeconfig: Kubeconfig; by default the service account in a cluster, else the user's own.
        pickers: Metrics port of a picker, such as http://127.0.0.1:9090, to be asked for savings instead; may be given
            several times.
        ledger: Folder that `heliotrope epp --ledger-dir` writes, to be read for savings instead.
        as_json: Print one JSON document instead.
    """
    if folder is not None and kubeconfig is not None:
        raise InvalidInputError("--folder", "give --folder or --kubeconfig, not both")
    asks = folder is None and not pickers and ledger is None
    snapshot = of_cluster(kubeconfig, namespaces, ask_pickers=asks) if folder is None else of_folder(folder)
    if pickers:
        snapshot = replace(snapshot, pickers=tuple(_asked(each) for each in pickers))
    savings = [status_savings.of_picker(each) for each in snapshot.pickers]
    if ledger is not None:
        savings.append(_of_ledger(ledger))
    found = status_rows.document(snapshot.within(namespaces), savings)
    if as_json:
        print(json.dumps(found, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    status_text.show(found, console)


def _asked(address: str) -> PickerText:
    try:
        return PickerText(f"picker {address}", picker_client.metrics(address))
    except picker_client.PickerUnreachableError as error:
        return PickerText(f"picker {address}", None, str(error))


def _of_ledger(folder: Path) -> dict[str, Any]:
    with needs("epp"):
        from heliotrope_epp.ledger.arms import read_arms
    row: dict[str, Any] = {"of": f"ledger {folder}"}
    try:
        arms = read_arms(folder)
    except HeliotropeError as error:
        return row | {"evidence": None, "says": f"unknown: {error}"}
    found = comparison.compare(arms.totals, slot_seconds=arms.slot_seconds)
    lines = savings_text.lines(found, policy=arms.policy, coverage=arms.coverage, caveats=arms.caveats)
    return row | {"evidence": found.evidence.value, "says": " ".join(lines[:3])}
