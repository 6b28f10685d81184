"""A report on a question, by many paid calls, an approval and a mail: `python -m examples.research.main`."""
