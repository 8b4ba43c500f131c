"""What can go wrong with the local Envoy."""

from heliotrope.errors import HeliotropeError


class GatewayError(HeliotropeError):
    """Envoy cannot be installed, started or asked; the message carries the end of its log."""
