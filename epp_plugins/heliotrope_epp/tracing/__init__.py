"""OpenTelemetry traces: what the picker decided, how the request went, and what it drew, on the client's own trace."""
