"""The `heliotrope` command."""
