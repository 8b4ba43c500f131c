"""Scalars that Kubernetes writes as strings: decimal numbers (the API has no floats), durations and times.

In Python they are `float`, `timedelta` and `datetime`; in a document they are strings. Each carries its bounds to both
sides.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Protocol

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

DECIMAL_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,18})?$"
DECIMAL_LENGTH = 31
_DECIMAL_FRACTION_DIGITS = 18
DURATION_PATTERN = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"
"""GEP-2257."""
DURATION_LENGTH = 28

_TIME_PATTERN = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_DURATION_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_MAX_DURATION_UNITS = 99_999


def parse_decimal(text: str) -> float:
    """The number of a decimal string such as `"0.25"`; no sign, no exponent.

    Raises:
        ValueError: if the string has another form.
    """
    if not re.fullmatch(DECIMAL_PATTERN[1:-1], text):
        raise ValueError('must be a decimal string such as "0.25", without sign or exponent')
    return float(text)


def format_decimal(value: float) -> str:
    """The shortest decimal string that reads back as this number, rounded to 18 digits after the point.

    Raises:
        ValueError: if the number is negative, not finite or has more than 12 digits before the point.
    """
    text = f"{Decimal(repr(float(value))):f}"
    if len(text.partition(".")[2]) > _DECIMAL_FRACTION_DIGITS:
        text = f"{value:.{_DECIMAL_FRACTION_DIGITS}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if not re.fullmatch(DECIMAL_PATTERN[1:-1], text):
        raise ValueError(f"{value!r} has no decimal string: it must be from 0 to below 1e12")
    return text


def parse_duration(text: str) -> timedelta:
    """The time span of a GEP-2257 string such as `"1h30m"`.

    Raises:
        ValueError: if the string has another form.
    """
    if not re.fullmatch(DURATION_PATTERN[1:-1], text):
        raise ValueError('must be a duration such as "500ms", "30s" or "1h30m"')
    return timedelta(milliseconds=sum(int(n) * _MILLISECONDS[unit] for n, unit in _DURATION_PART.findall(text)))


def format_duration(span: timedelta) -> str:
    """The GEP-2257 string of a time span, to the millisecond.

    Raises:
        ValueError: if the span is negative or longer than 99999 hours.
    """
    left = round(span / timedelta(milliseconds=1))
    if left < 0 or left // _MILLISECONDS["h"] > _MAX_DURATION_UNITS:
        raise ValueError(f"{span} is not between 0 and 99999h")
    parts = []
    for unit, size in _MILLISECONDS.items():
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_time(text: str) -> datetime:
    """The instant of an RFC 3339 string.

    Raises:
        ValueError: if the string has another form or names no real time.
    """
    if not _TIME_PATTERN.match(text):
        raise ValueError('must be an RFC 3339 time such as "2022-06-01T00:00:00Z"')
    return datetime.fromisoformat(text.upper())


def format_time(time: datetime) -> str:
    """The RFC 3339 string of an instant, in UTC.

    Raises:
        ValueError: if the time has no time zone.
    """
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


class _Codec(Protocol):
    def parse(self, text: str) -> Any: ...

    def accept(self, value: Any) -> Any: ...

    def format(self, value: Any) -> str: ...


def _string_schema(codec: _Codec) -> CoreSchema:
    """Documents hold strings, and only strings; Python code may pass the value itself."""
    parse = core_schema.no_info_after_validator_function(codec.parse, core_schema.str_schema(strict=True))
    return core_schema.json_or_python_schema(
        json_schema=parse,
        python_schema=core_schema.no_info_plain_validator_function(
            lambda value: codec.parse(value) if isinstance(value, str) else codec.accept(value)
        ),
        serialization=core_schema.plain_serializer_function_ser_schema(codec.format, when_used="json"),
    )


def _cel_double(value: float) -> str:
    text = format_decimal(value)
    return text if "." in text else f"{text}.0"


def _bounded(pattern: str, length: int, conditions: list[str], message: str) -> JsonSchemaValue:
    schema: JsonSchemaValue = {"type": "string", "pattern": pattern, "maxLength": length}
    if conditions:
        schema["x-kubernetes-validations"] = [{"rule": " && ".join(conditions), "message": message}]
    return schema


@dataclass(frozen=True, slots=True)
class DecimalString:
    """Annotates a `float` that documents write as a decimal string, within bounds."""

    minimum: float = 0.0
    maximum: float | None = None

    def parse(self, text: str) -> float:
        """The number, or ValueError."""
        return self.accept(parse_decimal(text))

    def accept(self, value: Any) -> float:
        """The number if it is within bounds, else ValueError."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise ValueError("must be a decimal string")  # noqa: TRY004 - pydantic reports ValueError
        number = float(value)
        if not self.minimum <= number <= (float("inf") if self.maximum is None else self.maximum):
            raise ValueError(self._bounds)
        return number

    def format(self, value: float) -> str:
        """The decimal string."""
        return format_decimal(value)

    @property
    def _bounds(self) -> str:
        if self.maximum is None:
            return f"must be at least {format_decimal(self.minimum)}"
        return f"must be between {format_decimal(self.minimum)} and {format_decimal(self.maximum)}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _string_schema(self)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        conditions = []
        if self.minimum > 0:
            conditions.append(f"double(self) >= {_cel_double(self.minimum)}")
        if self.maximum is not None:
            conditions.append(f"double(self) <= {_cel_double(self.maximum)}")
        return _bounded(DECIMAL_PATTERN, DECIMAL_LENGTH, conditions, self._bounds)


@dataclass(frozen=True, slots=True)
class DurationString:
    """Annotates a `timedelta` that documents write as in GEP-2257, within bounds."""

    minimum: str
    maximum: str

    def parse(self, text: str) -> timedelta:
        """The time span, or ValueError."""
        return self.accept(parse_duration(text))

    def accept(self, value: Any) -> timedelta:
        """The time span if it is within bounds, else ValueError."""
        if not isinstance(value, timedelta):
            raise ValueError("must be a duration string")  # noqa: TRY004 - pydantic reports ValueError
        if not parse_duration(self.minimum) <= value <= parse_duration(self.maximum):
            raise ValueError(self._bounds)
        return value

    def format(self, value: timedelta) -> str:
        """The GEP-2257 string."""
        return format_duration(value)

    @property
    def _bounds(self) -> str:
        return f"must be between {self.minimum} and {self.maximum}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _string_schema(self)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        conditions = []
        if parse_duration(self.minimum):
            conditions.append(f"duration(self) >= duration('{self.minimum}')")
        conditions.append(f"duration(self) <= duration('{self.maximum}')")
        return _bounded(DURATION_PATTERN, DURATION_LENGTH, conditions, self._bounds)


@dataclass(frozen=True, slots=True)
class TimeString:
    """Annotates a `datetime` with time zone that documents write as in RFC 3339."""

    def parse(self, text: str) -> datetime:
        """The instant, or ValueError."""
        return parse_time(text)

    def accept(self, value: Any) -> datetime:
        """The instant if it has a time zone, else ValueError."""
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise ValueError("must be a time with its time zone")
        return value

    def format(self, value: datetime) -> str:
        """The RFC 3339 string."""
        return format_time(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _string_schema(self)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "format": "date-time"}


Time = Annotated[datetime, TimeString()]
