"""Stores in the tables of a database: SQLite and PostgreSQL, and what they have in common."""
