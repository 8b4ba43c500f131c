"""Words for why a GPU is not as its intent asks, and why it was put back."""

from enum import StrEnum

from heliotrope_agent.pods.claims import Standing


class Reason(StrEnum):
    """Reasons in a NodePower's status (`GpuStatus.reasons`)."""

    ADVISE = "Advise"
    """The intent is advice."""
    AMBIGUOUS = "Ambiguous"
    """Two intents name its pod."""
    CLAMPED = "Clamped"
    """The device has no such clock or limit; the nearest that keeps below is taken."""
    DENIED = "Denied"
    """The agent lacks the privilege."""
    DRIVER_ERROR = "DriverError"
    """The driver failed or does not know the device any more."""
    DRY_RUN = "DryRun"
    """The agent was told to change nothing."""
    DWELL = "Dwell"
    """It was changed a moment ago, or too often."""
    FOREIGN_OWNER = "ForeignOwner"
    """No intent names its pod, or other processes run on it."""
    FOREIGN_WRITER = "ForeignWriter"
    """Somebody else sets it too."""
    GROUP = "Group"
    """Another GPU of its pod cannot be set, and they must all be alike."""
    LEASE_EXPIRED = "LeaseExpired"
    """The operator does not renew its Lease."""
    MIG = "Mig"
    """It is partitioned."""
    NO_WATCHDOG = "NoWatchdog"
    """Nobody would put it back if the agent died."""
    NOT_EFFECTIVE = "NotEffective"
    """The device does not do what it was told."""
    OWNERS_UNKNOWN = "OwnersUnknown"
    """The kubelet does not tell whose it is."""
    SHARED = "Shared"
    """Several containers have it."""
    STATE_UNWRITABLE = "StateUnwritable"
    """The file of originals cannot be written."""
    THROTTLED = "Throttled"
    """Heat or power hold the clock below what was set."""
    UNSUPPORTED = "Unsupported"
    """The device cannot do this."""
    UNVERIFIED = "Unverified"
    """The two sources that tell whose it is do not agree yet."""


STANDINGS = {
    Standing.SHARED: Reason.SHARED,
    Standing.MIG: Reason.MIG,
    Standing.FOREIGN_OWNER: Reason.FOREIGN_OWNER,
    Standing.UNVERIFIED: Reason.UNVERIFIED,
}
"""What a standing is called in the status."""


class Cause(StrEnum):
    """Why settings were put back; a label of metrics."""

    ADVISE = "advise"
    APPLY_FAILED = "apply_failed"
    FOREIGN_WRITER = "foreign_writer"
    GROUP = "group"
    INTENT_GONE = "intent_gone"
    LEASE_EXPIRED = "lease_expired"
    MOVED = "moved"
    NOT_ELIGIBLE = "not_eligible"
    ORPHAN = "orphan"
    OWNERS_UNKNOWN = "owners_unknown"
    POD_GONE = "pod_gone"
    SHUTDOWN = "shutdown"
    UNSUPPORTED = "unsupported"
