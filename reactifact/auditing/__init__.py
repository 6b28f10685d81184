"""Audit: where an answer comes from, written down so that it can be checked against the store later.

Owns the report of one artifact, its JSON and Markdown, and the check of a report.
"""
