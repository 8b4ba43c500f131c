"""The region tier: windows of requests assigned to regions in front of the clusters' gateways (docs/region-tier.md)."""
