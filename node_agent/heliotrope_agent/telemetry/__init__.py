"""Energy, power and clocks: sampled, attributed to pods, shown as metrics."""
