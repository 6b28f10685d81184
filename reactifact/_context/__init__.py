"""The working state of one branch, behind `reactifact.context`: reading, changing, committing, merging.

Nothing here runs an agent or sends anything; that is `_runtime`'s.
"""
