"""Who still owes an event an execution after two queues met."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactifact._sessions.converge import Owed, _left

AGENTS = frozenset("abc")
owed = st.none() | st.frozensets(st.sampled_from(sorted(AGENTS)))


def whole(found: Owed) -> frozenset[str]:
    """Return the agents of an event that was not matched yet: any of them."""
    return AGENTS if found is None else found


@given(owed, owed, owed)
def test_what_either_side_has_run_is_not_run_again(base: Owed, ours: Owed, theirs: Owed) -> None:
    left = whole(_left(base, ours, theirs))
    for agent in AGENTS:
        has_run = agent in whole(base) and (agent not in whole(ours) or agent not in whole(theirs))
        if has_run and base is not None and ours is not None and theirs is not None:
            assert agent not in left
        if agent in whole(ours) & whole(theirs):
            assert agent in left
    assert _left(base, ours, theirs) == _left(base, theirs, ours)


@given(owed)
def test_an_event_that_one_side_took_whole_is_gone(base: Owed) -> None:
    nobody: frozenset[str] = frozenset()
    assert _left(base, nobody, base) == nobody
    assert _left(base, base, base) == base
