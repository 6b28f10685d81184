"""TODO _store._history"""
