"""Verbs that stand in modules of their own: those that change a store, and those that look back."""
