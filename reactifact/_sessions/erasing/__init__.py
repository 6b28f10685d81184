"""Erasing what a person asks for: what belongs to it, which refs move, the order, clones that hold it."""
