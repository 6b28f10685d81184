"""The memory recipes, through the runtime: what is summed up, folded and dropped, and when."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from support import Place

from reactifact import (
    Artifact,
    Consume,
    Context,
    FakeLLM,
    Runtime,
    RuntimeResources,
    create_agent,
)
from reactifact.recipes import (
    RollingDigestSummarizer,
    WindowPruner,
    WindowSummarizer,
    llm_digest_summarizer,
    llm_summarizer,
)

pytestmark = pytest.mark.anyio


class Said(BaseModel):
    text: str
    at: int = 0


class Heard(BaseModel):
    text: str
    at: int = 0


class Summary(BaseModel):
    text: str
    number: int = 0


class Digest(BaseModel):
    text: str


async def nothing(context: Context, *rest: Any) -> None:
    """A model that is not there."""


def runtime(context: Context, *recipes: Any, types: Any = (Said,), debounce: bool = False) -> Runtime:
    consumes = [Consume(kind, debounce=debounce) for kind in types]
    return Runtime(context, [create_agent("memory", consumes=consumes, produces=list(recipes))])


async def say(run: Runtime, *numbers: int, kind: type[BaseModel] = Said) -> None:
    """Let messages come one turn after the other."""
    for number in numbers:
        run.context.create(kind(text=f"m{number}", at=number), id=f"{kind.__name__}:{number}")
        await run.arun()


def texts(context: Context, kind: type[BaseModel]) -> list[str]:
    return [artifact.data.text for artifact in context.list_artifacts(kind)]


def summarizer(**options: Any) -> WindowSummarizer[Summary]:
    options = {"summarize": nothing, **options}
    return WindowSummarizer(Said, Summary, build=lambda n, text: Summary(text=text, number=n), **options)


def digester(kinds: Any = Said, **options: Any) -> RollingDigestSummarizer[Digest]:
    options = {"summarize": nothing, "window": 2, "trigger": 4, **options}
    return RollingDigestSummarizer(kinds, Digest, build=lambda text: Digest(text=text), **options)


# -- summaries of windows ------------------------------------------------------------------------


async def test_one_summary_a_round() -> None:
    context = Context()
    run = runtime(context, summarizer(every=2, window=3))
    await say(run, 1)
    assert texts(context, Summary) == []
    await say(run, 2, 3)
    assert [found.id for found in context.list_artifacts(Summary)] == ["summary:1"]
    await say(run, 4)
    assert texts(context, Summary) == ["(offline memory) m1 | m2", "(offline memory) m2 | m3 | m4"]
    assert [found.data.number for found in context.list_artifacts(Summary)] == [1, 2]


async def test_a_round_that_exists_is_not_done_again() -> None:
    calls: list[str] = []

    async def summarize(context: Context, text: str) -> str:
        calls.append(text)
        return f"sum of {len(text.splitlines())}"

    context = Context()
    run = runtime(context, summarizer(summarize=summarize, every=2))
    await say(run, 1, 2)
    context.update("Said:1", Said(text="changed"))
    await run.arun()
    assert calls == ["m1\nm2"]
    assert texts(context, Summary) == ["sum of 2"]


async def test_several_messages_of_one_batch_make_one_summary_and_with_debounce_one_call() -> None:
    for debounce, expected in ((False, 4), (True, 1)):
        asked = 0

        async def summarize(context: Context, text: str) -> str:
            nonlocal asked
            asked += 1
            return f"answer {asked}"

        context = Context()
        run = runtime(context, summarizer(summarize=summarize), debounce=debounce)
        for number in range(4):
            context.create(Said(text=f"m{number}"))
        await run.arun()
        assert len(context.list_artifacts(Summary)) == 1
        assert asked == expected


async def test_order_ids_rendering_and_fallback_are_the_callers() -> None:
    context = Context()
    recipe = summarizer(
        every=3,
        window=2,
        order_key=lambda a: a.data.at,
        render=lambda found: "+".join(a.data.text for a in found),
        fallback=lambda text: f"<{text}>",
        id_of=lambda n: f"round-{n}",
    )
    await say(runtime(context, recipe), 3, 1, 2)
    found = context.get("round-1")
    assert found is not None
    assert found.data.text == "<m2+m3>"


async def test_summaries_that_derive_from_messages_are_not_counted() -> None:
    class Recap(Said):
        pass

    context = Context()
    recipe = WindowSummarizer(Said, Recap, summarize=nothing, build=lambda n, t: Recap(text=t), every=2)
    await say(runtime(context, recipe), 1, 2, 3, 4)
    assert [found.id for found in context.list_artifacts(Recap)] == ["summary:1", "summary:2"]


async def test_what_was_summed_up_stands_in_the_commit() -> None:
    context = Context()
    await say(runtime(context, summarizer(every=2)), 1, 2)
    last = context.history()[-1]
    assert [write.artifact_id for write in last.writes] == ["summary:1"]
    assert last.reads[0].artifact_id == "Said:2"


# -- pruning -------------------------------------------------------------------------------------


async def test_the_oldest_beyond_keep_go() -> None:
    context = Context()
    await say(runtime(context, WindowPruner(Said, keep=2)), 1, 2, 3, 4)
    assert texts(context, Said) == ["m3", "m4"]


async def test_the_order_of_pruning_is_the_callers() -> None:
    context = Context()
    await say(runtime(context, WindowPruner(Said, keep=2, order_key=lambda a: -a.data.at)), 1, 2, 3)
    assert texts(context, Said) == ["m1", "m2"]


async def test_a_batch_is_pruned_as_a_whole() -> None:
    context = Context()
    for number in range(6):
        context.create(Said(text=f"m{number}"))
    await runtime(context, WindowPruner(Said, keep=0)).arun()
    assert texts(context, Said) == []


# -- the rolling digest --------------------------------------------------------------------------


async def test_nothing_is_folded_before_there_are_more_than_trigger() -> None:
    context = Context()
    run = runtime(context, digester())
    await say(run, 1, 2, 3, 4)
    assert context.get("digest") is None
    await say(run, 5)
    assert texts(context, Digest) == ["(offline memory) m1 | m2 | m3"]
    assert texts(context, Said) == ["m4", "m5"]


async def test_a_second_fold_keeps_what_the_first_said() -> None:
    context = Context()
    await say(runtime(context, digester()), *range(1, 9))
    (text,) = texts(context, Digest)
    assert text.count("(offline memory)") == 2
    assert text.splitlines() == ["(offline memory) m1 | m2 | m3", "(offline memory) m4 | m5 | m6"]
    assert texts(context, Said) == ["m7", "m8"]


async def test_folding_is_one_commit() -> None:
    context = Context()
    await say(runtime(context, digester()), *range(1, 6))
    writes = [(write.artifact_id, write.op_type) for write in context.history()[-1].writes]
    assert writes == [("digest", "create"), *((f"Said:{n}", "delete") for n in (1, 2, 3))]


async def test_summarize_gets_the_digest_so_far_and_what_goes() -> None:
    calls: list[tuple[str, list[str]]] = []

    async def summarize(context: Context, previous: str, stale: list[Artifact[Any]]) -> str:
        calls.append((previous, [artifact.data.text for artifact in stale]))
        return f"fold {len(calls)}"

    context = Context()
    recipe = digester(summarize=summarize, digest_id="memo", digest_text=lambda a: a.data.text.upper())
    await say(runtime(context, recipe), *range(1, 9))
    assert calls == [("", ["m1", "m2", "m3"]), ("FOLD 1", ["m4", "m5", "m6"])]
    found = context.get("memo")
    assert found is not None
    assert (found.data.text, found.version) == ("fold 2", 1)


async def test_several_types_of_messages_are_one_conversation() -> None:
    context = Context()
    recipe = digester((Said, Heard), order_key=lambda a: a.data.at)
    run = runtime(context, recipe, types=(Said, Heard))
    await say(run, 5, 1, kind=Heard)
    await say(run, 2, 3, 4)
    assert texts(context, Digest) == ["(offline memory) m1 | m2 | m3"]
    assert [*texts(context, Said), *texts(context, Heard)] == ["m4", "m5"]


async def test_a_batch_is_folded_once() -> None:
    context = Context()
    for number in range(7):
        context.create(Said(text=f"m{number}"), id=f"Said:{number}")
    await runtime(context, digester()).arun()
    (text,) = texts(context, Digest)
    assert text == "(offline memory) m0 | m1 | m2 | m3 | m4"
    assert texts(context, Said) == ["m5", "m6"]


async def test_a_batch_is_folded_once_with_a_model_that_never_says_the_same() -> None:
    asked = 0

    async def summarize(context: Context, previous: str, stale: list[Artifact[Any]]) -> str:
        nonlocal asked
        asked += 1
        return f"{previous}[{asked}: {' '.join(a.data.text for a in stale)}]"

    context = Context()
    for number in range(6):
        context.create(Said(text=f"m{number}"))
    await runtime(context, digester(summarize=summarize)).arun()
    (text,) = texts(context, Digest)
    assert text.count("m0") == 1
    assert texts(context, Said) == ["m4", "m5"]


async def test_a_window_above_the_trigger_folds_only_what_is_older_than_it() -> None:
    context = Context()
    run = runtime(context, digester(window=4, trigger=2))
    await say(run, 1, 2, 3, 4)
    assert texts(context, Digest) == []
    await say(run, 5)
    assert texts(context, Said) == ["m2", "m3", "m4", "m5"]


async def test_the_digest_goes_on_after_a_reload(place: Place) -> None:
    session = await place.store().open("s")
    await say(Runtime(session.context, runtime(session.context, digester()).agents), *range(1, 6))
    await session.save()
    again = await place.store().open("s")
    run = Runtime(again.context, runtime(again.context, digester()).agents, session=again)
    await say(run, 6, 7, 8)
    (text,) = texts(await place.load("s"), Digest)
    assert text.count("(offline memory)") == 2


# -- on a model ----------------------------------------------------------------------------------


async def test_a_summary_by_a_model() -> None:
    llm = FakeLLM(["  ", "They said hello."])
    context = Context(RuntimeResources(llm=llm))
    recipe = summarizer(summarize=llm_summarizer("Sum up.", temperature=0.0, max_tokens=9), every=2)
    await say(runtime(context, recipe), 1, 2)
    assert texts(context, Summary) == ["They said hello."]
    assert len(llm.requests) == 2
    request = llm.requests[0]
    assert [(m.role, m.content) for m in request.messages] == [("system", "Sum up."), ("user", "m1\nm2")]
    assert (request.temperature, request.max_tokens) == (0.0, 9)


async def test_a_digest_by_a_model_is_told_what_it_said_before() -> None:
    llm = FakeLLM(["first", "second"])
    context = Context(RuntimeResources(llm=llm))
    recipe = digester(summarize=llm_digest_summarizer("Fold.", render=lambda found: f"{len(found)} new"))
    await say(runtime(context, recipe), *range(1, 9))
    asked = [request.messages[1].content for request in llm.requests]
    assert asked == ["New messages:\n3 new", "The digest so far:\nfirst\n\nNew messages:\n3 new"]
    assert texts(context, Digest) == ["second"]


async def test_a_model_that_fails_leaves_the_offline_text() -> None:
    def answer(request: Any) -> str:
        raise ConnectionError("no route")

    heard: list[Exception] = []
    context = Context(RuntimeResources(llm=FakeLLM(answer)))
    recipe = digester(summarize=llm_digest_summarizer("Fold.", attempts=3, on_error=heard.append))
    await say(runtime(context, recipe), *range(1, 6))
    assert texts(context, Digest) == ["(offline memory) m1 | m2 | m3"]
    assert [str(error) for error in heard] == ["no route"] * 3


async def test_without_a_model_there_is_the_offline_text() -> None:
    context = Context()
    await say(runtime(context, summarizer(summarize=llm_summarizer("Sum up."), every=1)), 1)
    assert texts(context, Summary) == ["(offline memory) m1"]


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: summarizer(every=0), "every=0"),
        (lambda: summarizer(window=0), "window=0"),
        (lambda: WindowPruner(Said, keep=-1), "keep=-1"),
        (lambda: digester(window=-1), "window=-1"),
        (lambda: digester(()), "no type of messages"),
        (lambda: digester((Said, Digest)), "Digest is a type of messages"),
        (lambda: llm_summarizer("x", attempts=0), "attempts=1 or more"),
    ],
)
async def test_a_recipe_that_cannot_work_is_refused_at_once(make: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        make()
