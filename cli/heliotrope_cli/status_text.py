"""`heliotrope status` for people: a table of each kind where there is room for one, else a paragraph of each object."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from heliotrope.api.scalars import parse_time

UNKNOWN = "–"
WIDE = 120
"""Columns from which tables are drawn."""
MOST_JOBS = 5
"""Waiting Jobs that are named; all are counted."""
EDGE = 2

Row = dict[str, Any]
Cell = Callable[[Row], str]


def show(found: Row, console: Console) -> None:
    """Print a document of `status_rows.document`."""
    now = found["now"]
    parts: tuple[tuple[str, str, Sequence[tuple[str, Cell]]], ...] = (
        ("regions", "Regions", REGION),
        ("policies", "Policies", POLICY),
        ("variants", "Variants", VARIANT),
        ("node_powers", "Node power", NODE_POWER),
    )
    for number, (name, title, columns) in enumerate(parts):
        _heading(console, title, first=number == 0)
        _part(console, found[name], columns)
    _jobs(console, found["waiting_jobs"], now)
    _heading(console, "Savings so far")
    for row in found["savings"]:
        _line(console, f"{row['of']}: {row['says']}")
    if not found["savings"]:
        _line(console, "unknown: there is no picker to ask; give --picker or --ledger")
    if found["problems"]:
        _heading(console, "Not read")
        for problem in found["problems"]:
            _line(console, problem)


def _part(console: Console, rows: list[Row] | None, columns: Sequence[tuple[str, Cell]]) -> None:
    if rows is None:
        _line(console, "unknown, see below")
        return
    if not rows:
        _line(console, "none")
        return
    cells = [[_printable(cell(row)) for _, cell in columns] for row in rows]
    if console.width < WIDE:
        for row in cells:
            _paragraph(console, [title for title, _ in columns], row)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, _ in columns:
        table.add_column(name, overflow="fold")
    for row in cells:
        table.add_row(*(Text(each) for each in row))
    console.print(Padding(table, (0, 0, 0, EDGE), expand=False))


def _paragraph(console: Console, titles: Sequence[str], row: Sequence[str]) -> None:
    """The first cell as its head, then all that is known."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, cell in zip(titles[1:], row[1:], strict=True):
        if cell != UNKNOWN:
            table.add_row(title, Text(cell))
    _line(console, row[0])
    console.print(Padding(table, (0, 0, 0, 2 * EDGE), expand=False))


def _jobs(console: Console, waiting: Row | None, now: str) -> None:
    _heading(console, "Jobs that wait")
    if waiting is None:
        _line(console, "unknown, see below")
        return
    if not waiting["count"]:
        _line(console, "none")
        return
    first = waiting["next_planned_start"]
    when = "none is planned yet" if first is None else f"the next start is planned for {first} ({_until(first, now)})"
    _line(console, f"{waiting['count']}; {when}")
    for job in waiting["jobs"][:MOST_JOBS]:
        deadline = "" if job["deadline"] is None else f", deadline {job['deadline']}"
        reason = "" if job["reason"] is None else f": {job['reason']}"
        _line(console, f"{job['job']}, planned {job['planned_start'] or UNKNOWN}{deadline}{reason}")
    if waiting["count"] > MOST_JOBS:
        _line(console, f"and {waiting['count'] - MOST_JOBS} more")


def _heading(console: Console, title: str, *, first: bool = False) -> None:
    if not first:
        console.print()
    console.print(Text(title, style="bold"))


def _line(console: Console, text: str) -> None:
    if console.is_terminal:
        console.print(Padding(Text(_printable(text)), (0, 0, 0, EDGE)))
        return
    console.print(Text(" " * EDGE + _printable(text)), soft_wrap=True)


def _printable(text: str) -> str:
    """Messages may hold what others wrote; nothing of it reaches the terminal raw."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _key(name: str) -> Cell:
    return lambda row: UNKNOWN if row[name] is None else str(row[name])


def _condition(name: str) -> Cell:
    """`yes`, or the reason why not."""

    def cell(row: Row) -> str:
        found = row[name]
        if found is None:
            return UNKNOWN
        return "yes" if found["status"] == "True" else str(found["reason"])

    return cell


def _intensity(row: Row) -> str:
    value = row["intensity_g_per_kwh"]
    estimated = " (estimated)" if row["estimated"] else ""
    return UNKNOWN if value is None else f"{value:.0f} g/kWh{estimated}"


def _age(row: Row) -> str:
    return UNKNOWN if row["age_seconds"] is None else _span(row["age_seconds"])


def _error(row: Row) -> str:
    error, baseline = row["forecast_error_g_per_kwh"], row["baseline_error_g_per_kwh"]
    if error is None:
        return UNKNOWN
    return f"{error:.1f}" + ("" if baseline is None else f" ({baseline:.1f})")


def _response(row: Row) -> str:
    event = row["event"]
    if event is None:
        return _condition("demand_response")(row)
    watts = "" if event["watts"] is None else f", {event['watts']:,} W"
    end = "" if event["end"] is None else f", until {event['end']}"
    return f"{event['name']}{watts}{end}"


def _conflict(row: Row) -> str:
    found = row["conflicted"]
    if found is None:
        return UNKNOWN
    return str(found["reason"]) if found["status"] == "True" else "no"


def _why(row: Row) -> str:
    return UNKNOWN if row["scaled"] is None else str(row["scaled"]["message"] or row["scaled"]["reason"])


def _clocks(row: Row) -> str:
    shown = []
    for each in row["clocks"]:
        parts = [] if each["role"] == "both" else [each["role"]]
        parts.append("its own" if each["sm_clock_mhz"] is None else f"{each['sm_clock_mhz']} MHz")
        if each["watts"] is not None:
            parts.append(f"{each['watts']} W")
        if each["enforcement"] == "Advise":
            parts.append("(advice)")
        shown.append(" ".join(parts))
    return ", ".join(shown) or UNKNOWN


def _agent(row: Row) -> str:
    age_s, silent = row["agent_age_seconds"], row["agent_silent"]
    if age_s is None:
        return UNKNOWN
    return f"silent for {_span(age_s)}" if silent else f"seen {_span(age_s)} ago"


def _span(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2.0 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _until(start: str, now: str) -> str:
    try:
        seconds = (parse_time(start) - parse_time(now)).total_seconds()
    except ValueError:
        return "a time that cannot be read"
    return f"in {_span(seconds)}" if seconds > 0.0 else "now"


REGION: tuple[tuple[str, Cell], ...] = (
    ("Region", _key("region")),
    ("Zone", _key("zone")),
    ("Intensity", _intensity),
    ("Age", _age),
    ("Freshness", _key("freshness")),
    ("Signal", _key("signal")),
    ("Source", _key("source")),
    ("Error (yesterday)", _error),
)
POLICY: tuple[tuple[str, Cell], ...] = (
    ("Policy", _key("policy")),
    ("Pools", lambda row: ", ".join(row["pools"])),
    ("Enforcement", _key("enforcement")),
    ("Accepted", _condition("accepted")),
    ("Acts", _condition("acts")),
    ("Signals", _condition("signals")),
    ("Demand", _condition("demand")),
    ("Power", _condition("power")),
    ("Demand response", _response),
    ("Rests", _condition("activation")),
)
VARIANT: tuple[tuple[str, Cell], ...] = (
    ("Variant", _key("variant")),
    ("Model", _key("model")),
    ("Region", _key("region")),
    ("Role", _key("role")),
    ("Desired", _key("desired")),
    ("Current", _key("current")),
    ("Active", _key("active")),
    ("Scaled", _condition("scaled")),
    ("Conflict", _conflict),
    ("Clock", _clocks),
    ("Why", _why),
)
NODE_POWER: tuple[tuple[str, Cell], ...] = (
    ("Node", _key("node")),
    ("Enforcement", _key("enforcement")),
    ("Intents", _key("intents")),
    ("Managed GPUs", _key("managed_gpus")),
    ("Applied", _condition("applied")),
    ("Lease", _condition("lease")),
    ("Agent", _agent),
)
