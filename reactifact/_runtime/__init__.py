"""The reactive loop, behind `reactifact.runtime`: planning, execution, commits, the drain of the outbox.

The way of a turn goes down once: turn, generation, commit, branch, backend.
"""
