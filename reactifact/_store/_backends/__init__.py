"""Where objects and refs lie: a bare repository, SQLite, PostgreSQL, memory, documents, bundles; and locks.

A backend knows ids, bytes and refs, and nothing of states or commits.
"""
