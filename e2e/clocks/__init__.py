"""A node whose engines, driver and agent are processes, and days on it."""
