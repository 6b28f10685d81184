"""A LangGraph program whose thread is a session of reactifact."""
