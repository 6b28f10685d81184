"""How agents are written: triggers, consumes, produces, effects, agents.

Above the context, below the runtime: nothing here runs a loop or commits.
"""
