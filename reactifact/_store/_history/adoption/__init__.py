"""Commits that somebody made with git, read against the nearest commits of ours: the tree decides."""
