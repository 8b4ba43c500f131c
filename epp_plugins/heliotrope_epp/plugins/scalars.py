"""Scalars that Kubernetes' Go types write as strings."""

import re
from math import isfinite
from typing import Annotated, Any

from pydantic import BeforeValidator

_DURATION = re.compile(r"\+?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?")


def _seconds(value: Any) -> float:
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError('must be a duration such as "500ms", "30s" or "1h30m"')
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))


def _quantity(value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _QUANTITY.fullmatch(text):
        raise ValueError('must be a quantity such as 100, "500M" or "1Gi"')
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("must be a finite number")
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""Seconds, written as a Go duration such as `"200ms"`; not negative."""

Quantity = Annotated[str, BeforeValidator(_quantity)]
"""A Kubernetes resource quantity as written, checked for its form; not negative."""

Finite = Annotated[float, BeforeValidator(_finite)]
"""A number that is not NaN or infinite (YAML can write both)."""
