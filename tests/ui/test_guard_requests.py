"""Who is answered, what a browser may do with an answer, and who may write."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

import pytest
from desk import SESSION
from reading import Client

from reactifact.ui.guard import Token, host_name

S = f"s={quote_plus(SESSION)}"


@pytest.mark.parametrize("path", ["/", "/nothing", "/session?s=nobody", "/static/style.css", "/pulse"])
def test_every_answer_forbids_what_a_page_does_not_need(client: Client, desk_store: Any, path: str) -> None:
    headers = client(desk_store).get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": "'self'",
        "script-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::2]:80"]
)
def test_a_host_that_was_not_named_is_refused(client: Client, desk_store: Any, host: str) -> None:
    answer = client(desk_store).get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "desk" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LocalHost:1", "[::1]:8765"])
def test_this_machine_is_answered(client: Client, desk_store: Any, host: str) -> None:
    assert client(desk_store).get("/", headers={"host": host}).status_code == 200


def test_the_name_of_a_host_is_what_stands_before_the_port() -> None:
    assert [host_name(text) for text in ("A:1", "[::1]:80", "[::1", "a")] == ["a", "[::1]", "[::1]", "a"]


@pytest.mark.parametrize("path", ["/retry", "/answer"])
def test_a_server_that_only_reads_takes_no_form(client: Client, desk_store: Any, path: str) -> None:
    answer = client(desk_store).post(f"{path}?{S}&b=main&id=x", data={"secret": ""})
    assert answer.status_code == 403
    assert "--allow-writes" in answer.text


@pytest.mark.parametrize("path", ["/", "/session"])
def test_only_forms_are_posted(client: Client, desk_store: Any, path: str) -> None:
    assert client(desk_store).post(path).status_code == 405


def test_the_token_is_taken_out_of_the_address(client: Client, desk_store: Any) -> None:
    token = Token()
    browser = client(desk_store, token, follow_redirects=False)
    assert "Read-only" in browser.get("/").text
    answer = browser.get("/questions", params={"s": SESSION, "token": token.token})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/questions?{S}"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.casefold()
    assert token.token not in cookie
    found = browser.get(answer.headers["location"]).text
    assert "This browser may retry and answer" in found
    assert token.token not in found


def test_another_token_is_refused(client: Client, desk_store: Any) -> None:
    browser = client(desk_store, Token())
    assert browser.get("/", params={"token": "guess"}).status_code == 403
    assert browser.get("/", params={"token": "r\u00e9"}).status_code == 403
    assert "Read-only" in browser.get("/").text
    assert client(desk_store).get("/", params={"token": "guess"}).status_code == 403  # it has none at all


def test_a_form_needs_the_cookie_and_the_secret_and_this_site(client: Client, desk_store: Any) -> None:
    token = Token()
    address = f"/retry?{S}&b=main&id=nobody"
    form = {"secret": token.form_secret}
    stranger, owner = client(desk_store, token), client(desk_store, token)
    owner.get("/", params={"token": token.token})
    assert stranger.post(address, data=form).status_code == 403
    assert owner.post(address, data={}).status_code == 403
    assert owner.post(address, data={"secret": "guess"}).status_code == 403
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert owner.post(address, data=form, headers=headers).status_code == 403
    assert owner.post(address, data={"secret": token.form_secret, "answer": "x" * 2**20}).status_code == 413
    passed = owner.post(
        address, data=form, headers={"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
    )
    assert passed.status_code == 404
    assert "has no action" in passed.text


def test_two_servers_do_not_share_a_cookie() -> None:
    one, other = Token(), Token()
    assert one.cookie_name != other.cookie_name
    assert len({one.token, one.cookie, one.form_secret}) == 3
    assert one.fits(one.token)
    assert not one.fits(other.token)
