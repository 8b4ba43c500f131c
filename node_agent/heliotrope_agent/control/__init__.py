"""What should be set on each GPU now, and setting it."""
