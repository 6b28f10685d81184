"""Bound fields, the two formatters, and the one logger that is configured."""

from __future__ import annotations

import io
import json
import logging
import logging.handlers
import queue
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from anyio import to_thread

from reactifact.logging import (
    RUN_FIELDS,
    ContextFilter,
    HumanFormatter,
    JSONFormatter,
    bind,
    configure_logging,
    current_context,
    get_logger,
    install_context_filter,
)

pytestmark = pytest.mark.every_loop

RUN = {"run_id": "r1", "session_id": "s1", "agent": "a", "generation": 2, "request_id": "q9"}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the `reactifact` logger as it was, so that other tests can capture its records."""
    logger = logging.getLogger("reactifact")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    logger.setLevel(before[1])


@pytest.fixture
def app() -> Iterator[logging.Logger]:
    """A logger of an application, which knows nothing of reactifact."""
    logger = logging.getLogger("myapp.orders")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.propagate = True


def written(logger: logging.Logger, formatter: logging.Formatter) -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    return stream


def json_line(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


# -- bound fields --------------------------------------------------------------------------------


def test_nothing_is_bound_outside() -> None:
    assert dict(current_context()) == {}


def test_blocks_nest_and_the_inner_value_wins() -> None:
    with bind(run_id="r1", agent="a"):
        with bind(agent="b", generation=1):
            assert dict(current_context()) == {"run_id": "r1", "agent": "b", "generation": 1}
        assert dict(current_context()) == {"run_id": "r1", "agent": "a"}
    assert dict(current_context()) == {}


def test_bound_fields_end_with_the_block_when_it_fails() -> None:
    with pytest.raises(KeyError), bind(run_id="r1"):
        raise KeyError("x")
    assert dict(current_context()) == {}


def test_the_bound_fields_cannot_be_changed_through_the_mapping() -> None:
    with bind(run_id="r1"), pytest.raises(TypeError):
        current_context()["run_id"] = "r2"  # type: ignore[index]


def test_a_name_that_records_have_already_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot bind message, name"), bind(name="x", message="y"):
        pass


@pytest.mark.anyio
async def test_bound_fields_follow_into_tasks_and_threads_and_stay_apart() -> None:
    seen: dict[str, dict[str, Any]] = {}
    both = [anyio.Event(), anyio.Event()]

    async def turn(number: int) -> None:
        with bind(run_id=f"r{number}"):
            both[number].set()
            await both[1 - number].wait()  # the two overlap for sure
            async with anyio.create_task_group() as group:
                group.start_soon(note, f"task{number}")
            seen[f"thread{number}"] = await to_thread.run_sync(lambda: dict(current_context()))

    async def note(name: str) -> None:
        seen[name] = dict(current_context())

    async with anyio.create_task_group() as group:
        group.start_soon(turn, 0)
        group.start_soon(turn, 1)
    assert seen == {
        "task0": {"run_id": "r0"},
        "thread0": {"run_id": "r0"},
        "task1": {"run_id": "r1"},
        "thread1": {"run_id": "r1"},
    }


# -- on records ----------------------------------------------------------------------------------


def test_the_adapter_puts_bound_fields_on_the_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = get_logger("myapp")
    with bind(**RUN):
        log.info("sold %s", "tea", extra={"agent": "own", "price": 3})
    log.info("later")
    first, second = caplog.records
    assert first.getMessage() == "sold tea"
    assert {name: getattr(first, name) for name in RUN_FIELDS} == {**RUN, "agent": "own"}
    assert first.__dict__["price"] == 3
    assert not hasattr(second, "run_id")


@pytest.mark.parametrize("formatter", [JSONFormatter(), HumanFormatter()])
def test_our_formatters_add_the_fields_to_records_of_any_logger(
    app: logging.Logger, formatter: logging.Formatter
) -> None:
    stream = written(app, formatter)
    with bind(**RUN):
        app.info("hello", extra={"agent": "own"})
    if isinstance(formatter, JSONFormatter):
        found = json_line(stream)
        assert {name: found[name] for name in RUN_FIELDS} == {**RUN, "agent": "own"}
    else:
        assert stream.getvalue().endswith(
            "INFO myapp.orders: hello [run_id=r1 session_id=s1 agent=own generation=2 request_id=q9]\n"
        )


def test_a_filter_serves_a_foreign_format(app: logging.Logger) -> None:
    form = logging.Formatter("%(run_id)s|%(agent)s|%(message)s", defaults=dict.fromkeys(RUN_FIELDS, "-"))
    stream = written(app, form)
    remove = install_context_filter(*app.handlers)
    with bind(**RUN):
        app.info("inside", extra={"agent": "own"})
    app.info("outside")
    remove()
    with bind(**RUN):
        app.info("no more")
    assert stream.getvalue().splitlines() == ["r1|own|inside", "-|-|outside", "-|-|no more"]


def test_a_filter_without_arguments_goes_to_the_handlers_of_the_root_logger() -> None:
    stream = written(logging.getLogger(), logging.Formatter("%(run_id)s %(message)s"))
    handler = logging.getLogger().handlers[-1]
    remove = install_context_filter()
    try:
        with bind(run_id="r1"):
            logging.getLogger("myapp").warning("hello")
    finally:
        remove()
        logging.getLogger().removeHandler(handler)
    assert stream.getvalue() == "r1 hello\n"
    assert not any(isinstance(found, ContextFilter) for found in handler.filters)


def test_a_record_that_waits_in_a_queue_keeps_the_fields_of_its_own_run(app: logging.Logger) -> None:
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(waiting)
    app.addHandler(handler)
    remove = install_context_filter(handler)
    with bind(run_id="r1"):
        app.info("hello")
    remove()
    with bind(run_id="another", agent="other"):
        text = JSONFormatter().format(waiting.get_nowait())
    assert json.loads(text)["run_id"] == "r1"


@pytest.mark.anyio
async def test_a_record_formatted_in_another_thread_gets_nothing_bound_there() -> None:
    record = logging.LogRecord("myapp", logging.INFO, __file__, 1, "hello", (), None)
    with bind(run_id="of the other thread"):
        text = await to_thread.run_sync(JSONFormatter().format, record)
        assert json.loads(JSONFormatter().format(record))["run_id"] == "of the other thread"
    assert "run_id" not in json.loads(text)


# -- formatting ----------------------------------------------------------------------------------


def test_json_has_the_fields_flat(app: logging.Logger) -> None:
    stream = written(app, JSONFormatter())
    app.warning("two\nlines of %d", 2, extra={"order": {"id": 1}, "level": "high", "when": RuntimeError})
    found = json_line(stream)
    assert found.pop("timestamp").endswith("+00:00")
    assert found == {
        "level": "WARNING",
        "logger": "myapp.orders",
        "message": "two\nlines of 2",
        "order": {"id": 1},
        "level_": "high",
        "when": "<class 'RuntimeError'>",
    }


def test_json_holds_the_exception(app: logging.Logger) -> None:
    stream = written(app, JSONFormatter())
    try:
        raise ValueError("no tea")
    except ValueError:
        app.exception("failed")
    found = json_line(stream)
    assert found["exc"].startswith("Traceback")
    assert found["exc"].endswith("ValueError: no tea")


def test_json_stays_json_whatever_a_field_holds(app: logging.Logger) -> None:
    stream = written(app, JSONFormatter())
    cycle: list[Any] = []
    cycle.append(cycle)
    app.info("odd", extra={"nan": float("nan"), "keys": {(1, 2): 3}, "cycle": cycle, "fine": 1})
    found = json_line(stream)
    values = [found[name] for name in ("nan", "keys", "cycle", "fine")]
    assert values == ["nan", "{(1, 2): 3}", "[[...]]", 1]


def test_the_human_format_quotes_what_would_run_together(app: logging.Logger) -> None:
    stream = written(app, HumanFormatter())
    app.info("sold", extra={"item": "green tea", "n": 3, "note": "a\nb", "none": ""})
    app.info("plain")
    first, second = stream.getvalue().splitlines()
    assert first.endswith(r'INFO myapp.orders: sold [item="green tea" n=3 note="a\nb" none=""]')
    assert second.endswith("INFO myapp.orders: plain")


def test_the_human_format_puts_a_traceback_after_the_fields(app: logging.Logger) -> None:
    stream = written(app, HumanFormatter())
    try:
        raise ValueError("no tea")
    except ValueError:
        app.exception("failed", extra={"item": "tea"})
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("failed [item=tea]")
    assert rest[-1] == "ValueError: no tea"


# -- configuring ---------------------------------------------------------------------------------


def test_silent_until_configured_but_the_root_logger_gets_the_records(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    get_logger("reactifact.runtime").warning("hello")
    assert [record.getMessage() for record in caplog.records] == ["hello"]
    assert capsys.readouterr().err == ""
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("reactifact").handlers)


def test_one_handler_however_often_it_is_called() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("DEBUG", stream=first)
    logger = configure_logging("warning", json=True, stream=second)
    assert logger is logging.getLogger("reactifact")
    assert (logger.level, logger.propagate) == (logging.WARNING, False)
    get_logger("reactifact.runtime").info("not this")
    get_logger("reactifact.runtime").warning("but this")
    assert first.getvalue() == ""
    assert json_line(second)["message"] == "but this"


def test_a_handler_of_the_application_is_left_alone() -> None:
    logger = logging.getLogger("reactifact")
    stream = written(logger, logging.Formatter("%(message)s"))
    configure_logging(logging.INFO, stream=io.StringIO())
    configure_logging(logging.INFO, stream=io.StringIO())
    logger.info("once")
    assert stream.getvalue() == "once\n"


def test_it_writes_to_stderr_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    with bind(run_id="r1"):
        get_logger("reactifact.runtime").info("run started", extra={"max_iterations": 5})
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.endswith("INFO reactifact.runtime: run started [run_id=r1 max_iterations=5]\n")


def test_an_unknown_level_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'LOUD' is not a log level"):
        configure_logging("LOUD")
