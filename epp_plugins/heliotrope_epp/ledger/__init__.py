"""Where joules went: rows by time, place, request and line, on disk and as counters."""
