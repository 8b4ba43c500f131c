"""Structured logs: one JSON object a line, or readable text. Never a prompt, key or token."""

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

OUR_LOGGERS = ("heliotrope", "heliotrope_agent", "heliotrope_epp", "heliotrope_operator")


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, whatever a call passes as `extra={"fields": {…}}`, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """The same for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more with a traceback."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = "".join(f" {key}={value}" for key, value in getattr(record, "fields", {}).items())
        line = f"{time} {record.levelname:<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(level: str, *, as_json: bool, stream: TextIO) -> None:
    """Send the logs of this process to a stream; our own from `level` on, those of libraries from WARNING on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())
