"""Whatever ids, names and foreign data hold, nothing is made outside the folder of the store.

Each test looks at everything around the store before and after, and takes no error but ours.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import OwnBackend
from support import Note, fsck, live

from reactifact import Context, Runtime, SessionStore, create_agent
from reactifact._store._backends.bundle import encode_bundle
from reactifact._store.layout import BOOKKEEPING, file_path
from reactifact._store.object_db import Staging, blob_entry
from reactifact._store.objects import (
    BLOB_MODE,
    TREE_MODE,
    CommitObject,
    GitObject,
    Oid,
    Signature,
    TreeEntry,
    encode_commit,
    object_id,
)
from reactifact._store.protocol import RefUpdate
from reactifact._store.trees import update
from reactifact.branching import BranchStore
from reactifact.checkpoints import FileBackend, FileKVBackend
from reactifact.cli import main
from reactifact.errors import InvalidName, NotAStore, ReactifactError
from reactifact.transfer import export_store, import_store
from reactifact.types import register

LINK_MODE, MODULE_MODE = 0o120000, 0o160000

HOSTILE = [
    *("..", ".", "../x", "../../x", "../../../../../../../tmp/x", "/etc/x", "//x", "/", "\\..\\x", "C:\\x"),
    *("%2e%2e", "%2e%2e%2fx", "%2F", "..%2f..%2fx", "x/../../../y", "x/.git/hooks/y", ".git", ".GIT"),
    *(".git/config", "hooks/post-update", "config", "HEAD", "refs/heads/x", "objects", "packed-refs"),
    *("con", "NUL", "aux.txt", "x\0y", "\0", "x\ny", "~", "~/x", "$HOME/x", "-x", "--output=x", "x.lock"),
    *("a" * 4096, "../" * 1000, "\u202e../x", "\uff0e\uff0e\uff0fx", "git~1"),
    *(".\u200d./x", "x" * 255, "|touch x", "`touch x`"),
]  # fmt: skip

names = st.one_of(st.sampled_from(HOSTILE), st.text(alphabet="./\\%2eE~\0:x-", min_size=1, max_size=12))


def around(root: Path, store: Path) -> dict[str, tuple[int, int]]:
    """Return every path below `root` but not below the store, with its mode and size."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) != store]
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if not path.startswith(str(store)):  # SQLite keeps its own files beside
                seen = os.lstat(path)
                found[path] = (seen.st_mode, seen.st_size if name in files else 0)
    return found


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A deep folder to keep a store in, with something to lose on every level above it."""
    folder = tmp_path
    for level in ("a", "b", "c", "work"):
        folder = folder / level
        folder.mkdir()
        for name in ("x", "y", "config", "HEAD"):
            (folder / name).write_text("kept")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    outside = {f"/{name}" for name in os.listdir("/")} | {f"/tmp/{name}" for name in ("x", "y")}
    there = {path for path in outside if os.path.lexists(path)}
    yield folder / "store"
    assert {path for path in outside if os.path.lexists(path)} == there
    assert not any(os.path.lexists(path) for path in ("/x", "/etc/x"))


def check_inside(store: Path) -> None:
    """No link leads out of the store."""
    for folder, folders, files in os.walk(store):
        for name in (*folders, *files):
            assert not os.path.islink(os.path.join(folder, name))


@pytest.mark.parametrize("ending", [".git", ".db"])
def test_ids_of_every_kind_stay_inside(inside: Path, ending: str) -> None:
    store = inside.with_suffix(ending)

    async def fill() -> None:
        sessions, branches = SessionStore(store, durability="os"), BranchStore(store, durability="os")
        for number, name in enumerate(HOSTILE):
            session = await sessions.open(name)
            context = session.context
            model = register(type("Odd", (Note,), {}), type_id=f"hostile {number} {name}"[:4096])
            context.create(model(text=name), id=name)
            context.link(name, name, name)
            await Runtime(context, [create_agent(name, consumes=[], produces=[])], session=session).arun()
            fork = context.branch(name=name)
            fork.update(name, model(text="fork"))
            await branches.save_branch(fork, session_id=name, name=name)
            await session.save()
            with suppress(ReactifactError):  # a name may read as something else
                await branches.tag(name, "kept", session=name)
                await branches.tag("main", name[:40] + " tag", session=name)
        assert await sessions.list_sessions() == sorted(HOSTILE)
        for name in HOSTILE:
            context = await sessions.load_session(name)
            assert context is not None
            assert live(context, name).data.text == name
            fork = await branches.load_branch(name, name)
            assert fork is not None
            assert live(fork, name).data.text == "fork"
        await sessions.aclose()

    before = around(inside.parents[3], store)
    anyio.run(fill)
    assert around(inside.parents[3], store) == before
    check_inside(store)
    if ending == ".git":
        fsck(store)


@pytest.mark.parametrize("kind", [FileKVBackend, OwnBackend])
@settings(max_examples=10)
@given(st.lists(names, max_size=5, unique=True))
def test_keys_and_sessions_of_any_name_stay_inside(kind: Any, keys: list[str]) -> None:
    place = Path(os.environ["PYTEST_HOSTILE"])
    root = place.parents[3]
    shutil.rmtree(place, ignore_errors=True)
    before = around(root, place)

    async def store() -> None:
        backend = kind(place) if kind is FileKVBackend else kind()
        for key in keys:
            if kind is FileKVBackend:
                await backend.set(key, {"key": key})
            session = await SessionStore(backend).open(key)
            session.context.create(Note(text=key), id=key)
            await session.save()
        if kind is FileKVBackend:
            assert await backend.keys() == sorted(keys)
        assert await SessionStore(backend).list_sessions() == sorted(keys)
        await backend.aclose()

    anyio.run(store)
    assert around(root, place) == before


@pytest.fixture(autouse=True)
def place_of_examples(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_HOSTILE", str(inside.with_suffix(".kv")))


@pytest.mark.parametrize("key", ["", "\ud800", "x" * 4097])
def test_what_is_no_name_is_refused_as_such(inside: Path, key: str) -> None:
    async def refuse() -> None:
        backend = FileKVBackend(inside)
        for attempt in (backend.set(key, {}), backend.get(key), backend.delete(key)):
            with pytest.raises(InvalidName):
                await attempt
        store = SessionStore(backend)
        with pytest.raises(InvalidName):
            await store.open(key)

    anyio.run(refuse)


# --- foreign repositories and bundles ----------------------------------------------------------------


WHO = Signature("evil", "evil@example.com", 1_700_000_000)

REFS = [
    *("refs/heads/../../../x", "refs/heads/s/../../../../x", "refs/../../x", "refs/../config"),
    *("refs/../HEAD", "/x", "../x", "x", "config", "HEAD/x", "refs//x", "refs/heads//x", "refs/heads/s/.git"),
    *("refs/x\\..\\y", "refs/heads/s/x.lock", "refs/heads/s/x.", "refs/heads/s/a b"),
    *("refs/heads/s/%2e%2e", "refs/kv/../x"),
    *("refs/heads/%zz/%zz", "refs/heads/s", "refs/heads/s/x/y/z", "refs/tags/../x", "refs/kv/%2e%2e%2fx"),
    *("refs/reactifact/operations/../../../x", "refs/heads/" + "x" * 251, "refs/heads/s/\u2028", "refs/\x01"),
]  # fmt: skip

ENTRIES = [
    *(
        (name, BLOB_MODE)
        for name in ("..", ".", ".git", ".GIT", "/etc/x", "../x", "a/b", "x\\..\\y", "git~1")
    ),
    *(("link", LINK_MODE), ("module", MODULE_MODE), (".gitmodules", BLOB_MODE), ("commit.json", BLOB_MODE)),
    *((name, TREE_MODE) for name in ("..", ".git", ".reactifact", "artifacts")),
    *((name, LINK_MODE) for name in ("artifacts", ".reactifact", "..", ".git")),
]


def put(objects: dict[Oid, GitObject], kind: Any, data: bytes) -> Oid:
    oid = object_id(kind, data)
    objects[oid] = GitObject(kind, data)
    return oid


def tree_bytes(name: str, mode: int, oid: Oid) -> bytes:
    return b"%o %b\0%b" % (mode, name.encode(), bytes.fromhex(oid))


def evil_commit(objects: dict[Oid, GitObject], name: str, mode: int) -> Oid:
    blob = put(objects, "blob", b"../../../x")
    oid = blob if mode != TREE_MODE else put(objects, "tree", tree_bytes("..", LINK_MODE, blob))
    if mode == MODULE_MODE:
        oid = "1" * 40
    tree = put(objects, "tree", tree_bytes(name, mode, oid))
    return put(objects, "commit", encode_commit(CommitObject(tree, (), WHO, WHO, "evil\n")))


async def looked_at(place: Path) -> None:
    """Use a store in every way that does not change it; our errors are fine."""
    for verb in (
        ["sessions"],
        ["log"],
        ["outbox"],
        ["show", "s/main"],
        ["context", "--session", "s"],
        ["replay", "--session", "s", "--verify-all"],
    ):
        assert await anyio.to_thread.run_sync(main, [verb[0], str(place), *verb[1:]]) in (0, 1, 2)
    with suppress(ReactifactError):
        store = SessionStore(place, durability="os")
        for use in (store.list_sessions, store.pending_sessions, lambda: store.load_session("s")):
            with suppress(ReactifactError):
                await use()
        await store.aclose()


@pytest.mark.parametrize("ending", [".git", ".db"])
def test_a_hostile_bundle_stays_inside(inside: Path, ending: str, capsys: Any) -> None:
    """Every odd ref and every odd tree, each in a bundle of its own."""
    hostile = [(ref, "file", BLOB_MODE) for ref in REFS]
    hostile += [("refs/heads/s/main", name, mode) for name, mode in ENTRIES]

    async def bring() -> None:
        for number, (ref, name, mode) in enumerate(hostile):
            objects: dict[Oid, GitObject] = {}
            commit = evil_commit(objects, name, mode)
            bundle = inside.parent / "evil.bundle"
            bundle.write_bytes(encode_bundle({ref: commit}, objects))
            target = inside.with_name(f"store{number}{ending}")
            before = around(inside.parents[3], target)
            try:
                await import_store(bundle, target)
            except ReactifactError as error:
                told.append(str(error))
            await looked_at(bundle)
            if target.exists():
                await looked_at(target)
                check_inside(target)
            assert around(inside.parents[3], target) == before, (ref, name)
            bundle.unlink()

    told: list[str] = []
    anyio.run(bring)
    assert sum("cannot name a ref" in one for one in told) > 10
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("name", "mode"), ENTRIES)
def test_a_hostile_repository_stays_inside(inside: Path, name: str, mode: int, capsys: Any) -> None:
    async def open_it() -> None:
        objects: dict[Oid, GitObject] = {}
        commit = evil_commit(objects, name, mode)
        backend = FileKVBackend(store, durability="os")
        if mode == MODULE_MODE:
            objects.pop("1" * 40, None)
        backend.write(objects, [RefUpdate("refs/heads/s/main", None, commit)])
        await backend.aclose()
        await looked_at(store)
        for target in ("copy.db", "copy.git", "copy.bundle"):
            with suppress(ReactifactError):
                await export_store(store, target)
            path = inside.parent / target
            for file in inside.parent.glob(f"{target}*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            assert not path.exists()

    store = inside.with_suffix(".git")
    before = around(inside.parents[3], store)
    anyio.run(open_it)
    assert around(inside.parents[3], store) == before
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "target", ["../../x", "refs/heads/../../../x", "/etc/hostname", "refs/heads/\0", "HEAD", "refs/heads", ""]
)
@pytest.mark.parametrize("place", ["HEAD", "refs/heads/s/main", "refs/kv/x", "packed-refs"])
def test_files_of_refs_that_name_others_stay_inside(inside: Path, target: str, place: str) -> None:
    async def write() -> None:
        session = await SessionStore(store, durability="os").open("s")
        session.context.create(Note(text="x"), id="n1")
        await session.save()
        (store / place).parent.mkdir(parents=True, exist_ok=True)
        before = (store / "refs/heads/s/main").read_text().strip()
        line = f"{before} {target}" if place == "packed-refs" else f"ref: {target}"
        (store / place).write_text(f"{line}\n")
        await looked_at(store)
        with suppress(ReactifactError):
            session = await SessionStore(store, durability="os").open("s2")
            session.context.create(Note(text="y"), id="n2")
            await session.save()
            await SessionStore(store, durability="os").delete_session("s")
            await FileKVBackend(store, durability="os").keys()

    store = inside.with_suffix(".git")
    (inside.parents[1] / "x").write_text("0" * 40)  # what could pass for a ref
    before = around(inside.parents[3], store)
    anyio.run(write)
    assert around(inside.parents[3], store) == before


@pytest.mark.parametrize("mode", [LINK_MODE, MODULE_MODE, TREE_MODE])
@pytest.mark.parametrize("place", ["meta", "payload", "relations"])
def test_a_state_with_links_and_modules_in_it_stays_inside(inside: Path, mode: int, place: str) -> None:
    store = inside.with_suffix(".git")

    async def forge() -> None:
        sessions = SessionStore(store, durability="os")
        session = await sessions.open("s")
        session.context.create(Note(text="x"), id="n1")
        session.context.link("n1", "to", "n1")
        await session.save()
        database, ref = sessions.database, "refs/heads/s/main"
        tip = database.backend.refs(ref)[ref]
        staging = Staging(database)
        commit = staging.commit(tip)
        path = {
            "meta": (BOOKKEEPING, "meta", *file_path("n1")),
            "payload": ("artifacts", "support.Note", *file_path("n1")),
            "relations": ("relations", *file_path("n1")),
        }[place]
        if mode == TREE_MODE:
            entry = TreeEntry(mode, staging.put_tree({"..": blob_entry(staging.put("blob", b"x"))}))
        else:
            link = staging.put("blob", b"../../../../x") if mode == LINK_MODE else "1" * 40
            entry = TreeEntry(mode, link)
        tree = update(staging, commit.tree, {path: entry})
        assert tree is not None
        forged = staging.put_commit(replace(commit, tree=tree))
        database.write(staging.objects, [RefUpdate(ref, tip, forged)])
        await sessions.aclose()
        await looked_at(store)
        with suppress(ReactifactError):
            context = await SessionStore(store).load_session("s")
            assert context is not None
            for use in (context.list_artifacts, context.relations, context.history, context.snapshot):
                with suppress(ReactifactError):
                    use()

    before = around(inside.parents[3], store)
    anyio.run(forge)
    assert around(inside.parents[3], store) == before


# --- documents and what the published package wrote --------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE[::6])
def test_a_hostile_document_stays_inside(inside: Path, name: str) -> None:
    async def load() -> None:
        context = Context()
        context.create(Note(text="x"), id="n1")
        document = context.to_dict()
        for change in (
            {"session": name},
            {"branch": name},
            {"refs": {name: next(iter(document["refs"].values()))}},
            {"refs": {next(iter(document["refs"])): name}},
            {"objects": {name: next(iter(document["objects"].values()))}},
            {"objects": dict.fromkeys(document["objects"], name)},
            {"session": name, "branch": name, "refs": {f"refs/heads/{name}/{name}": name}},
        ):
            path = inside.parent / "checkpoint.json"
            await FileBackend(path).save({**document, **change})
            with suppress(ReactifactError):
                loaded = Context.from_dict(await FileBackend(path).load())
                await SessionStore(store, durability="os").save_session(name, loaded)
            path.unlink()
            own = OwnBackend()
            own.texts["session-s"] = json.dumps({**document, **change})
            own.texts[f"session-{name}"] = own.texts["session-s"]
            with suppress(ReactifactError):
                await SessionStore(own).list_sessions()
                await SessionStore(own).open("s")

    store = inside.with_suffix(".git")
    before = around(inside.parents[3], store)
    anyio.run(load)
    assert around(inside.parents[3], store) == before


PUBLISHED = Path(__file__).parent.parent / "fixtures/published/kv"


@pytest.mark.parametrize("name", HOSTILE[::6])
def test_hostile_data_of_the_published_package_stays_inside(inside: Path, name: str) -> None:
    async def bring() -> None:
        entry = json.loads((PUBLISHED / "user-1.json").read_text())
        for change in ("key", "artifact", "type", "relation", "branch"):
            odd = json.loads(json.dumps(entry))
            data = odd["data"]
            if change == "key":
                odd["key"] = name
            elif change == "branch":
                odd["key"] = f"branch:{name}:{name}"
            elif change == "artifact":
                data["artifacts"][name] = {**data["artifacts"].pop("o1"), "id": name}
            elif change == "type":
                data["artifacts"]["o1"]["data_type"] = name
            else:
                data["relations"] = [{"source_id": "o1", "relation": name, "target_id": name}]
            source = inside.parent / "source"
            source.mkdir()
            (source / "entry.json").write_text(json.dumps(odd))
            with suppress(InvalidName, NotAStore):
                await import_store(source, FileKVBackend(store, durability="os"))
            shutil.rmtree(source)
            shutil.rmtree(store, ignore_errors=True)

    store = inside.with_suffix(".git")
    before = around(inside.parents[3], store)
    anyio.run(bring)
    assert around(inside.parents[3], store) == before
