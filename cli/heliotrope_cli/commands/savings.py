"""`heliotrope savings`: what a policy saved, measured against its holdout."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from heliotrope.carbon import savings as comparison
from heliotrope.carbon.savings import Metric
from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope_cli import savings_text
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.output import show


def savings(
    ledger: Path,
    /,
    *,
    policy: str | None = None,
    since: str | None = None,
    until: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    classes: Annotated[Metric, Parameter(name="--classes")] = Metric.GRAMS,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Compare the requests that a policy steered with those that its holdout kept blind to carbon.

    Joules, grams, TTFT, TPOT and broken promises per request, by class and overall, with block-bootstrap intervals.
    Without a holdout nothing is measured, and savings are called modelled.

    Args:
        ledger: Folder that `heliotrope epp --ledger-dir` writes; it may be in use.
        policy: Policy as namespace/name; needed where the ledger holds several.
        since: Leave out what began before this RFC 3339 time, such as 2026-03-01T00:00:00Z.
        until: Leave out what began at this time or later.
        confidence: Of the intervals.
        seed: Of the bootstrap.
        classes: What the table by class shows.
        as_json: Print one JSON document instead.
    """
    with needs("epp"):
        from heliotrope_epp.ledger.arms import read_arms
    if not 0.5 <= confidence < 1.0:
        raise InvalidInputError("--confidence", f"{confidence} is not between 0.5 and 1")
    arms = read_arms(
        ledger,
        policy=policy,
        since_unix_s=None if since is None else _unix("--since", since),
        until_unix_s=None if until is None else _unix("--until", until),
    )
    found = comparison.compare(arms.totals, slot_seconds=arms.slot_seconds, confidence=confidence, seed=seed)
    if as_json:
        result = savings_text.document(found, policy=arms.policy, coverage=arms.coverage, caveats=arms.caveats)
        print(json.dumps(result, indent=2, allow_nan=False))
        return
    tables = [savings_text.overall_table(found), savings_text.class_table(found, classes)] if found.overall else []
    show(savings_text.lines(found, policy=arms.policy, coverage=arms.coverage, caveats=arms.caveats), tables)


def _unix(name: str, text: str) -> float:
    try:
        return unix_seconds(text)
    except InvalidInputError as error:
        raise InvalidInputError(name, error.problem) from error
