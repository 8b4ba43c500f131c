"""The API server: the node's NodePower, the operator's Lease, status and events."""
