"""`heliotrope ledger`: where joules went, by whatever is asked."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich import box
from rich.table import Table

from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.tables import console

_UNKNOWN = "–"
_TITLES = {
    "requests": "requests",
    "output_tokens": "tokens out",
    "it_kwh": "kWh",
    "grams_co2e": "gCO2e",
    "embodied_grams_co2e": "embodied g",
    "water_liters": "water l",
}


def ledger(
    folder: Path,
    /,
    *,
    by: Annotated[tuple[str, ...], Parameter(name="--by", negative_iterable="")] = ("region", "line"),
    since: str | None = None,
    until: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Sum a ledger's energy, requests, grams, water and cost by any of its keys.

    Grams of different signal types stand in rows of their own; they are never added. The folder may be in use.

    Args:
        folder: Folder that `heliotrope epp --ledger-dir` writes.
        by: What to sum by, several times if wanted: hour, day, region, variant, model, asked_model, tenant, policy,
            arm, request_class, line, picker.
        since: Leave out slots that began before this RFC 3339 time, such as 2026-03-01T00:00:00Z.
        until: Leave out slots that began at this time or later.
        as_json: Print a JSON list of rows instead.
    """
    with needs("epp"):
        from heliotrope_epp.ledger.read import opened
        from heliotrope_epp.ledger.summary import KEYS, summary
    for name in by:
        if name not in KEYS:
            raise InvalidInputError("--by", f"{name!r} is no key; there are {', '.join(KEYS)}")
    with opened(folder) as connection:
        rows = summary(connection, tuple(dict.fromkeys(by)), _unix("--since", since), _unix("--until", until))
    if as_json:
        print(json.dumps([{name: _plain(value) for name, value in row.items()} for row in rows], indent=2))
        return
    console().print(_table(rows, tuple(dict.fromkeys(by))))


def _table(rows: list[dict[str, Any]], by: tuple[str, ...]) -> Table:
    """Keys, then sums; a column in which nothing is known is left out."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns: list[tuple[str, Literal["left", "right"], list[str]]]
    columns = [(name.replace("_", " "), "left", [_text(row[name]) for row in rows]) for name in by]
    columns += [
        ("signal", "left", [" ".join(filter(None, (row["signal_type"], row["emission_factor"]))) for row in rows]),
        *((title, "right", [_text(row[name]) for row in rows]) for name, title in _TITLES.items()),
        *(
            (title, "right", [_money(row[name], row[currency]) for row in rows])
            for name, currency, title in (
                ("hardware_cost", "currency", "hardware"),
                ("electricity_cost", "electricity_currency", "electricity"),
            )
        ),
    ]
    columns = [column for column in columns if any(text not in ("", _UNKNOWN) for text in column[2])]
    for title, justify, _ in columns:
        shown.add_column(title, justify=justify)
    for texts in zip(*(column[2] for column in columns), strict=True):
        shown.add_row(*(text or _UNKNOWN for text in texts))
    return shown


def _money(value: float | None, currency: str | None) -> str:
    return _UNKNOWN if value is None else f"{_text(value)} {currency or ''}".strip()


def _text(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1.0 else f"{value:,.2f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%MZ").removesuffix(" 00:00Z")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _unix(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return unix_seconds(text)
    except InvalidInputError as error:
        raise InvalidInputError(name, error.problem) from error
