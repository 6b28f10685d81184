"""What looks over stored commits: revisions, diff, log, blame, merge, rebase, squash, the operation log."""
