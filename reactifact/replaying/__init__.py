"""Replay: a stored state rebuilt, a history checked, a run repeated and compared.

Owns the hashes of states, `replay_context`, the check of a whole history, recorded model calls,
`verify_run`, and bundles. No agent and no dispatcher runs here, but for what `verify_run` is given.
"""
