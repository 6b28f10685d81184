"""Try two strategies side by side: `python -m examples.forklab.main [--store PATH]`.

Two strategies race: each reprices a shop's catalogue on a fork of its own. The forks are compared field
by field; the judge wants the dearer shelf, so the careful strategy wins and is merged. The bold one is
merged as well then, by hand. Both changed the price of the samovar: that merge is a conflict, nothing of it
is applied, until a policy says that the lower price wins. With `--store` all of it stays in a bare
repository there, to be read with git.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import click

from reactifact import MergeConflict, Runtime, Session, SessionStore
from reactifact.branching import BranchStore, Fork
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import NotAStore
from reactifact.merging import ConflictDetail

from .shop import CATALOGUE, Goal, Product, strategies

SESSION = "lab"


async def stock(branches: BranchStore) -> None:
    """Fill the shop, in one commit that wakes nobody."""
    async with branches.edit(SESSION, author="ann", message="Fill the shop") as context:
        for name, product in CATALOGUE.items():
            context.create(product, id=name)


async def try_out(session: Session) -> int:
    """Let the strategy loose that the fork is named after; what it does is saved there."""
    name = session.branch
    session.context.create(Goal(text=f"reprice, {name}"), id=f"goal:{name}")
    return await Runtime(session.context, agents=[strategies()[name]], session=session).arun()


def dearer_shelf(forks: Mapping[str, Fork]) -> str:
    """Judge: the strategy wins whose prices add up to more."""
    return max(forks, key=lambda name: sum(p.data.price for p in forks[name].context.list_artifacts(Product)))


async def race(branches: BranchStore) -> None:
    """Run both strategies side by side, show what they did, and merge the winner."""
    entrants = dict.fromkeys(strategies(), try_out)
    found = await branches.race(f"{SESSION}/main", entrants, judge=dearer_shelf, keep=True)
    assert [fork.result for fork in found.forks.values()] == [1, 1]
    for name, fork in found.forks.items():
        click.echo(f"\n{name} against main:")
        for product in fork.diff.state.changed:
            (field,) = product.fields
            click.echo(f"    {product.id}: {field.path} {field.old} -> {field.new}")
    assert found.winner == "careful"
    assert found.merged is not None


async def prices(branches: BranchStore, name: str) -> dict[str, int]:
    """Return the prices on a branch."""
    context = await branches.load_branch(SESSION, name)
    assert context is not None
    return {product.id: product.data.price for product in context.list_artifacts(Product)}


def lower_price(conflict: ConflictDetail) -> Product:
    """Settle a conflict about a product: the lower price wins."""
    assert isinstance(conflict.ours, Product)
    assert isinstance(conflict.theirs, Product)
    return min(conflict.ours, conflict.theirs, key=lambda product: product.price)


async def compare(branches: BranchStore) -> None:
    """Show where the strategies differ."""
    found = await branches.diff(f"{SESSION}/careful", f"{SESSION}/bold")
    differing = [product.id for product in found.state.changed]
    click.echo(f"\nthey differ in {', '.join(differing)}")
    assert differing == ["kettle", "samovar", "teapot"]


async def conflicts(branches: BranchStore, into: str, source: str) -> list[ConflictDetail]:
    """Merge, and return what could not be decided."""
    try:
        await branches.merge(into=into, source=source)
    except MergeConflict as error:
        return error.details
    return []


async def merge(branches: BranchStore) -> None:
    """Merge the other strategy too, with a policy for what is contested."""
    assert (await prices(branches, "main"))["samovar"] == 220_00
    click.echo("\ncareful has won and is merged")

    before = await prices(branches, "main")
    contested = await conflicts(branches, f"{SESSION}/main", f"{SESSION}/bold")
    assert [detail.artifact_id for detail in contested] == ["samovar"]
    click.echo(f"bold is not: {contested[0].summary}")
    assert await prices(branches, "main") == before  # nothing of it was applied, the teapot's price neither

    bold = await branches.merge(into=f"{SESSION}/main", source=f"{SESSION}/bold", policy=lower_price)
    assert bold is not None
    assert len(bold.object.parents) == 2
    click.echo("bold is merged, the lower price winning")


async def run(path: str | None) -> None:
    """Run the lab."""
    store = SessionStore(path if path is not None else InMemoryKVBackend())
    try:
        if await store.has_session(SESSION):
            raise click.UsageError(
                f"{path} holds the lab of an earlier run: remove it or choose another path"
            )
        branches = BranchStore(store.database)
        await stock(branches)
        await race(branches)
        await compare(branches)
        await merge(branches)
        final = await prices(branches, "main")
        click.echo("\n" + "\n".join(f"{name:8} {price / 100:8.2f}" for name, price in final.items()))
        assert final == {"kettle": 44_00, "teapot": 24_00, "cup": 8_00, "samovar": 160_00}
        (price, *_) = [
            field for field in await branches.blame(f"{SESSION}/main", "teapot") if field.path == "price"
        ]
        assert price.agent == "bold"
        click.echo(f"the teapot's price is {price.agent}'s, on {(price.trigger or {}).get('artifact_id')}")
    finally:
        await store.aclose()


@click.command(help=__doc__)
@click.option("--store", "path", type=click.Path(), help="A bare repository, made when absent.")
def main(path: str | None) -> None:
    """Run the example."""
    try:
        anyio.run(run, path)
    except NotAStore as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main()
