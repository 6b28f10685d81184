"""Two strategies tried side by side on forks, compared, and merged: `python -m examples.forklab.main`."""
