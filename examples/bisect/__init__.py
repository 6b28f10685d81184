"""A total goes wrong one day, and the store tells in which generation: `python -m examples.bisect.main`."""
