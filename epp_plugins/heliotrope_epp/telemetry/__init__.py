"""What the picker shows: metrics and the admin port."""
