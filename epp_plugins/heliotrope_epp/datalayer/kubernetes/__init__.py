"""The Kubernetes API as the source of truth."""

from heliotrope_epp.datalayer.kubernetes.source import KubernetesSource

__all__ = ["KubernetesSource"]
