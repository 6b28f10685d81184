"""The content store: git's objects, the layout of state in them, commits, merges and backends.

Knows ids and bytes. Models, agents and effects are the business of the layers above.
"""
