"""What became of each request: how it ended, what it truly drew, and who is told."""
