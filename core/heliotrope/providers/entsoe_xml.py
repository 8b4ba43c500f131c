"""ENTSO-E's documents: generation per production type, and the acknowledgement that there is none."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NoReturn
from xml.etree import ElementTree

from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import BadAnswerError, InvalidInputError, NoDataError, SignalUnavailableError
from heliotrope.units import SECONDS_PER_HOUR

MAX_VALUES = 500_000
NO_DATA_CODE = "999"
_RESOLUTION = re.compile(r"PT(?:(\d{1,2})H)?(?:(\d{1,3})M)?")
_FINEST_S, _COARSEST_S = 60.0, SECONDS_PER_HOUR
VARIABLE_BLOCKS = "A03"
"""Curve type in which a position that equals the one before it is left out."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Mean power of one production type over one market time unit."""

    psr_type: str
    start_unix_s: float
    duration_s: float
    megawatts: float


def read_generation(body: bytes, source: str) -> list[Generated]:
    """What a GL_MarketDocument says was fed in; what plants took from the grid is left out.

    Raises:
        NoDataError: for an acknowledgement that there is no matching data.
        SignalUnavailableError: for an acknowledgement of something else.
        BadAnswerError: if it is neither document.
    """
    try:
        root = ElementTree.fromstring(body, ElementTree.XMLParser(target=_NoDoctype()))  # noqa: S314 - no entities, see below
    except (ElementTree.ParseError, LookupError, ValueError):
        raise BadAnswerError(f"{source}: the answer is not XML") from None
    kind = _local(root.tag)
    if kind == "Acknowledgement_MarketDocument":
        _raise_reason(root, source)
    if kind != "GL_MarketDocument":
        raise BadAnswerError(f"{source}: the answer is a {kind[:64]}, not a GL_MarketDocument")
    found: list[Generated] = []
    try:
        for series in _children(root, "TimeSeries"):
            if _child(series, "outBiddingZone_Domain.mRID") is not None:
                continue  # consumption, for instance of pumps
            found += _of_series(series, MAX_VALUES - len(found))
    except _BadDocumentError as error:
        raise BadAnswerError(f"{source}: {error}") from None
    return found


def _of_series(series: ElementTree.Element, most: int) -> list[Generated]:
    psr_type = _text(_required(_required(series, "MktPSRType"), "psrType"))
    unit = _child(series, "quantity_Measure_Unit.name")
    if unit is not None and _text(unit) != "MAW":
        raise _BadDocumentError(f"generation is in {_text(unit)[:16]!r}, not in MAW (megawatts)")
    curve = _child(series, "curveType")
    blocks = curve is not None and _text(curve) == VARIABLE_BLOCKS
    found: list[Generated] = []
    for period in _children(series, "Period"):
        interval = _required(period, "timeInterval")
        start, end = _time(_required(interval, "start")), _time(_required(interval, "end"))
        step_s = _resolution(_text(_required(period, "resolution")))
        positions = round((end - start) / step_s)
        if not 0 <= positions <= most - len(found):
            raise _BadDocumentError(f"has more than {MAX_VALUES} values, or a period that ends before it starts")
        points = sorted((_position(point), _quantity(point)) for point in _children(period, "Point"))
        for position, megawatts in _filled(points, positions) if blocks else points:
            if not 1 <= position <= positions:
                raise _BadDocumentError(f"position {position} is outside of its period of {positions}")
            found.append(Generated(psr_type, start + (position - 1) * step_s, step_s, megawatts))
        if len(found) > most:
            raise _BadDocumentError(f"has more than {MAX_VALUES} values")
    return found


def _filled(points: Sequence[tuple[int, float]], positions: int) -> Iterator[tuple[int, float]]:
    """Every position from the first that is there: one that is left out is as the one before it."""
    for index, (position, megawatts) in enumerate(points):
        last = points[index + 1][0] - 1 if index + 1 < len(points) else positions
        for each in range(position, min(last, positions) + 1):
            yield each, megawatts


def _raise_reason(root: ElementTree.Element, source: str) -> NoReturn:
    reason = _child(root, "Reason")
    code = None if reason is None else _child(reason, "code")
    text = None if reason is None else _child(reason, "text")
    if code is not None and _text(code) == NO_DATA_CODE:
        raise NoDataError(f"{source} has no generation of this zone and time; check spec.source.entsoe.domain")
    said = "" if text is None else " ".join(_text(text).split())
    raise SignalUnavailableError(f"{source} refuses the question: {said}" if said else f"{source} refuses the question")


def _position(point: ElementTree.Element) -> int:
    text = _text(_required(point, "position"))
    if not text.isdecimal():
        raise _BadDocumentError("a position is no number")
    return int(text)


def _quantity(point: ElementTree.Element) -> float:
    try:
        value = float(_text(_required(point, "quantity")))
    except ValueError:
        raise _BadDocumentError("a quantity is no number") from None
    if not isfinite(value):
        raise _BadDocumentError("a quantity is no number")
    return value


def _resolution(text: str) -> float:
    found = _RESOLUTION.fullmatch(text)
    seconds = 0.0 if found is None else int(found[1] or 0) * SECONDS_PER_HOUR + int(found[2] or 0) * 60.0
    if not _FINEST_S <= seconds <= _COARSEST_S:
        raise _BadDocumentError(f"resolution {text[:16]!r} is not between PT1M and PT60M")
    return seconds


def _time(element: ElementTree.Element) -> float:
    try:
        return unix_seconds(_text(element))
    except (InvalidInputError, OverflowError):
        raise _BadDocumentError("a period has no times") from None


def _children(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _local(child.tag) == name)


def _child(element: ElementTree.Element, name: str) -> ElementTree.Element | None:
    return next(_children(element, name), None)


def _required(element: ElementTree.Element, name: str) -> ElementTree.Element:
    found = _child(element, name)
    if found is None:
        raise _BadDocumentError(f"a {_local(element.tag)[:64]} has no {name}")
    return found


def _text(element: ElementTree.Element) -> str:
    return (element.text or "").strip()


def _local(tag: str) -> str:
    """A tag without its namespace, which changes with the document's version."""
    return tag.rpartition("}")[2]


class _BadDocumentError(Exception):
    """What is wrong, before it is known who is to blame."""


class _NoDoctype(ElementTree.TreeBuilder):
    def doctype(self, name: str, *_: str) -> None:
        """Refuse it: ENTSO-E sends none, and entities can blow up a small document.

        Raises:
            ValueError: always.
        """
        raise ValueError(name)
