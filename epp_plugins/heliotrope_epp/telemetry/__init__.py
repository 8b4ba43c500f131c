"""What the picker shows: metrics, logs and the admin port."""
