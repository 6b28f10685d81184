"""Refunds that a person approves in a browser: `python -m examples.approvals.main`."""
