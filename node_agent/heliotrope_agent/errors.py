"""Errors of the node agent: one class per case that somebody handles."""

from heliotrope.errors import HeliotropeError


class AgentError(HeliotropeError):
    """Root of the agent's errors."""


class DriverError(AgentError):
    """The driver refused a call or failed in it; the settings that it was about are unknown until read again."""


class DriverMissingError(DriverError):
    """There is no driver on this node, or it does not answer; the message says what was looked for."""


class DeviceGoneError(DriverError):
    """The GPU has fallen off the bus, was reset, or is unknown to the driver."""


class DeviceUnknownError(DeviceGoneError):
    """The driver knows no such GPU: it is not in this machine, or not this driver's."""


class DeniedError(DriverError):
    """The process lacks the privilege to change settings (root or CAP_SYS_ADMIN)."""


class UnsupportedError(DriverError):
    """The device or its driver cannot do this; asking again will not help."""


class PodsUnknownError(AgentError):
    """Nobody could tell which pods have which GPUs; owners stay what they were, and nothing new is set."""


class StateError(AgentError):
    """The file of originals cannot be read or written; without it nothing is changed."""


class CorruptStateError(StateError):
    """No copy of the file of originals is whole; the agent falls back to the devices' own defaults."""


class NewerStateError(StateError):
    """A newer version of Heliotrope wrote the file of originals; this one must not guess what it means."""


class AnotherAgentError(AgentError):
    """Another agent manages the GPUs of this node; two would undo each other's settings."""

    def __init__(self, problem: str, holder: object = None) -> None:
        """`holder` is a `heliotrope_agent.state.lock.LockHolder`, or None if it is not known."""
        super().__init__(problem)
        self.holder = holder


class FencedError(AgentError):
    """The watchdog or a human has taken over; this process must not write to devices or state any more."""
