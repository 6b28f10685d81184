"""The public face: the names at the top level, and the paths users import from."""

from __future__ import annotations

import importlib

import pytest

import reactifact

TOP_LEVEL = """
    Agent Artifact Budget BudgetTracker Consume Context Create Delete EmbeddingProvider
    Effects Event EventType FakeEmbedder FakeLLM FunctionTool Handle LLMProvider
    LLMRequest LLMResponse LLMResponseChunk Link Message MergeConflict Patch PendingAction
    PendingQuestion Produce ProduceCall Relation ResourceKey ResourceScope RunOutcome
    RunStats Runtime RuntimeResources Session SessionStore Tool ToolOutput Trigger Unlink
    Update View bind configure_logging consume create_agent current_request get_logger
    produce register_type step tool
"""

# Each path with the names that users import from it. A path may have more.
PATHS = {
    "agents": "Agent create_agent step",
    "artifacts": "Artifact",
    "audit": "build_report context_hash data_hash report_to_json report_to_markdown",
    "branching": "BranchStore MergeConflict",
    "budget": "Budget BudgetTracker RunOutcome RunStats",
    "checkpoints": "FileKVBackend GitBackend InMemoryKVBackend KVBackend",
    "commit": "Commit Read Write",
    "consume": "AbsentConsume Consume CorrelatedConsume JoinConsume consume",
    "context": "Context View",
    "effects": "Effects Handle current_effects",
    "events": "Event EventType",
    "interrupt": "PendingAction PendingQuestion",
    "logging": "JSONFormatter bind configure_logging current_context get_logger",
    "merging": (
        "CONFLICT MISSING ConflictDetail MergeConflict MergePreview Policy append_only as_set counter "
        "last_writer per_field unless_both"
    ),
    "operations": "Create Delete Link Unlink Update operation_from_dict",
    "outbox": "ActionStatus OutboxStatus RetryingDispatcher actions outbox_status",
    "patches": "Create Link Patch Relation Unlink Update operation_from_dict",
    "produce": "Produce ProduceCall produce",
    "providers": (
        "EmbeddingProvider FakeEmbedder FakeLLM LLMProvider LLMRequest LLMResponse LLMResponseChunk Message"
    ),
    "recipes": (
        "RollingDigestSummarizer StatusMachine WindowPruner WindowSummarizer changed_fields "
        "downstream_fields earliest_stage find find_all llm_digest_summarizer llm_summarizer"
    ),
    "replay": "ReplayLLM ReplayMiss counter_ids replay_context replay_summary verify_run",
    "request": "current_request reset_request set_request",
    "resources": "ResourceKey ResourceScope RuntimeResources",
    "runtime": "RunCancelled RunInfo Runtime active_runs cancel_run stop_on_signals",
    "session": "Session SessionStore",
    "sources": "SourceRef",
    "streaming": "EventHub ProgressEvent",
    "structured": "structured_llm",
    "triggers": "Trigger",
    "types": "TypeNotFoundError limit_imports register resolve type_id_of",
    "viz": "blueprint context_to_mermaid",
}


def test_the_top_level_has_exactly_these_names() -> None:
    assert len(reactifact.__all__) == 53
    assert sorted(reactifact.__all__) == sorted(TOP_LEVEL.split())
    assert all(hasattr(reactifact, name) for name in reactifact.__all__)


def test_register_type_is_register() -> None:
    assert reactifact.register_type is importlib.import_module("reactifact.types").register


def test_step_is_the_decorator_of_agents() -> None:
    assert reactifact.step is importlib.import_module("reactifact.agents").step


@pytest.mark.parametrize("path", PATHS)
def test_each_path_has_its_names(path: str) -> None:
    module = importlib.import_module(f"reactifact.{path}")
    names = PATHS[path].split()
    assert set(names) <= set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("path", PATHS)
def test_a_name_is_the_same_object_on_every_path(path: str) -> None:
    module = importlib.import_module(f"reactifact.{path}")
    for name in set(PATHS[path].split()) & set(reactifact.__all__):
        assert getattr(module, name) is getattr(reactifact, name)
