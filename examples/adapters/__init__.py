"""Agents of pydantic-ai and of the OpenAI Agents SDK as produces of reactifact; no key is needed."""
