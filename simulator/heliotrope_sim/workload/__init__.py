"""Request workloads: recorded traces and the prompts that stand in for their texts."""
