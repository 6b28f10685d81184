"""Large objects in a bare repository: little memory beyond their own to write and to read them."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid, object_id
from reactifact.errors import StoreError

MIB = 1024 * 1024

_CHILD = """
import anyio, base64, random, sys
from pydantic import BaseModel
from reactifact import SessionStore

MIB = 48
path, act = sys.argv[1:]

class Document(BaseModel):
    text: str

def peak():
    with open("/proc/self/status") as file:  # `ru_maxrss` is what the parent had, where that is more
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

async def write():
    session = await SessionStore(path).open("s")
    session.context.create(Document(text="small"), id="small")
    await session.save()
    drawn, before = random.Random(1), peak()
    pieces = [base64.b64encode(drawn.randbytes(3 * 2**18)).decode()] * MIB
    document = Document(text="".join(pieces))
    session.context.create(document, id="large")
    await session.save()
    print((peak() - before) / MIB)

async def read():
    context = await SessionStore(path).load_session("s")
    assert context.get("small", Document).data.text == "small"
    before = peak()
    assert len(context.get("large", Document).data.text) == MIB * 2**20
    print((peak() - before) / MIB)

anyio.run(write if act == "write" else read)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_large_payload_takes_little_more_memory_than_model_and_bytes(tmp_path: Path) -> None:
    for act in ("write", "read"):
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(tmp_path / "store"), act],
            capture_output=True,
            text=True,
            check=True,
        )
        ratio = float(done.stdout)
        assert ratio < 2.3, f"{act} took {ratio:.2f} times the payload: 2 are the model and its bytes"


def written(path: Path, *contents: bytes) -> list[Oid]:
    """Write some blobs as one pack; return their ids."""
    objects = {object_id("blob", content): GitObject("blob", content) for content in contents}
    backend = GitBackend(path)
    backend.write(objects)
    backend.close()
    return list(objects)


@pytest.mark.parametrize("filler", [b"\0", None], ids=["in a small pack", "in a large pack"])
def test_large_objects_come_back_beside_small_ones(tmp_path: Path, filler: bytes | None) -> None:
    drawn = random.Random(2)
    large = bytes(9 * MIB) if filler else drawn.randbytes(20 * MIB)
    oids = written(tmp_path / "s", large, b"small", b"x" * MIB, b"y" * (MIB - 1))
    backend = GitBackend(tmp_path / "s")
    assert [len(backend.read_many([oid])[oid].data) for oid in oids] == [len(large), 5, MIB, MIB - 1]
    assert backend.read_many(oids)[oids[0]] == GitObject("blob", large)


@pytest.mark.parametrize("size", [MIB, 20 * MIB])
def test_a_damaged_large_object_is_refused_and_the_others_are_read(tmp_path: Path, size: int) -> None:
    oids = written(tmp_path / "s", random.Random(3).randbytes(size), b"small")
    (pack,) = (tmp_path / "s" / "objects" / "pack").glob("*.pack")
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(content)
    backend = GitBackend(tmp_path / "s")
    assert backend.read_many([oids[1]])[oids[1]].data == b"small"
    for asked in ([oids[0]], oids):
        with pytest.raises(StoreError, match=oids[0]):
            backend.read_many(asked)
