"""What is asked of a pool: arrivals counted by model, and requests held until an engine is awake."""
