"""A person corrects with git what agents did, and they go on from there: `python -m examples.review.main`."""
