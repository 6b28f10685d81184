"""Looking at what is at hand alone, as an event loop does before it asks a thread to read."""

from __future__ import annotations

import pytest
from building import blob

from reactifact._store.object_db import Database, NotAtHand, Staging
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.threads import in_thread


def database(*texts: bytes) -> tuple[Database, list[str]]:
    """Return a database that has some blobs in its backend, and their ids."""
    objects = dict(blob(text) for text in texts)
    backend = InMemoryKVBackend()
    backend.write(objects)
    return Database(backend), list(objects)


def test_what_is_not_at_hand_is_refused_and_read_again_afterwards() -> None:
    found, (one, other) = database(b"one", b"other")
    found.read(one)
    staging = Staging(found)
    staged = staging.put("blob", b"staged")
    for look in (found.read, lambda oid: found.prefetch([oid]), lambda oid: found.read_many([oid])):
        with found.at_hand_alone(8):
            look(one)
            with pytest.raises(NotAtHand):
                look(other)
    with found.at_hand_alone(8):
        assert staging.read_many([one, staged]).keys() == {one, staged}
    assert found.read(other).data == b"other"


def test_much_is_refused_although_it_is_at_hand() -> None:
    found, oids = database(*(b"%d" % number for number in range(9)))
    found.prefetch(oids)
    with found.at_hand_alone(8):
        found.prefetch(oids[:5])
        with pytest.raises(NotAtHand):
            found.prefetch(oids[:4])
    found.prefetch(oids)


@pytest.mark.anyio
async def test_another_thread_reads_meanwhile() -> None:
    found, (one,) = database(b"one")
    with found.at_hand_alone(8):
        assert (await in_thread(found.read, one)).data == b"one"


@pytest.mark.parametrize(("is_local", "kept"), [(True, 41), (False, 50)])
def test_a_store_whose_reads_are_quick_is_kept_at_hand_in_less_memory(is_local: bool, kept: int) -> None:
    backend = InMemoryKVBackend() if is_local else Away()
    objects = dict(blob(b"%d" % number + bytes(400_000)) for number in range(50))
    backend.write(objects)
    found = Database(backend)
    found.prefetch(objects)
    oids = list(objects)
    with found.at_hand_alone(100):
        assert len(found.read_many(oids[-kept:])) == kept
        if is_local:
            with pytest.raises(NotAtHand):
                found.read(oids[-kept - 1])


class Away(InMemoryKVBackend):
    """A store that takes long to read."""

    @property
    def is_local(self) -> bool:
        return False
