"""`SourceRef`: a place in a source has one id, whatever was found or asked there."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from reactifact.sources import SourceRef

texts = st.text(max_size=10)


@given(texts, texts, texts, texts)
def test_two_places_have_two_ids(source: str, locator: str, other_source: str, other_locator: str) -> None:
    one = SourceRef(source_id=source, locator=locator).stable_id()
    other = SourceRef(source_id=other_source, locator=other_locator).stable_id()
    assert (one == other) == ((source, locator) == (other_source, other_locator))


def test_what_was_found_or_asked_does_not_count() -> None:
    place = SourceRef(source_id="web", locator="https://example.com/a")
    found = SourceRef(
        source_id="web",
        locator="https://example.com/a",
        metadata={"page": 3},
        score=0.5,
        title="A",
        excerpt="...",
        query_id="q",
    )
    assert found.stable_id() == place.stable_id()
    assert place.stable_id().startswith("source:")


def test_the_id_is_the_same_in_every_process() -> None:
    code = (
        "from reactifact.sources import SourceRef; print(SourceRef(source_id='web', locator='ä').stable_id())"
    )

    def made(seed: str) -> str:
        environment = {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip()

    assert {made("1"), made("2")} == {SourceRef(source_id="web", locator="ä").stable_id()}
