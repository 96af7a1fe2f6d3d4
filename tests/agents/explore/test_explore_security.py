"""The server over HTTP: pages of its own get answers, everybody else nothing; sizes are limited; measuring needs the token."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from dataclasses import replace

import pytest

from agents.explore.__main__ import listening, main
from agents.explore.security import HEADERS, NAMES, refusal

from .conftest import SMALL, Served

STATE = "/state?" + SMALL.after("tile[4]").query()
HOST = replace(SMALL, machine="host").query()


def test_a_page_and_its_parts(served: Served) -> None:
    status, headers, page = served.ask("/?" + SMALL.query())
    assert status == 200 and served.token in page and 'data-state="ready"' in page
    assert {name: headers[name] for name in HEADERS} == HEADERS
    status, _, state = served.ask(STATE, {"Origin": f"http://127.0.0.1:{served.port}", "Sec-Fetch-Site": "same-origin"})
    assert status == 200 and "tile[4]: " in state and served.token not in state
    status, _, code = served.ask("/code?" + SMALL.query())
    assert status == 200 and "__global__" in code
    for name in re.findall(r'(?:src|href)="/(\w+\.\w+)"', page):
        assert served.ask(f"/{name}")[0] == 200
    assert served.ask("/../pyproject.toml")[0] == 404 and served.ask("/page.css/../../server.py")[0] == 404


def test_a_player_is_asked_step_by_step(served: Served) -> None:
    status, _, state = served.ask("/state?" + SMALL.query() + "&player=markov")
    assert status == 200 and re.search(r'data-query="[^"]*actions=[a-z_]+\[\d\]"', state)
    assert served.ask("/state?" + SMALL.after("stop").query() + "&player=markov")[0] == 204
    status, _, said = served.ask("/state?" + SMALL.query() + "&player=nobody")
    assert status == 400 and "no player &#39;nobody&#39;" in said


FOREIGN = {
    "another origin": {"Origin": "http://evil.example"},
    "no origin of a sandbox": {"Origin": "null"},
    "another port of this machine": {"Origin": "http://127.0.0.1:1"},
    "a picture of another site": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    "a frame of another site": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    "a page of another port": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    "a name that was made to point here": {"Host": "evil.example"},
    "that with the port": {"Host": "evil.example:{port}"},
    "another port": {"Host": "127.0.0.1:1"},
    "no host": {"Host": ""},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_others_get_nothing(served: Served, headers: dict[str, str]) -> None:
    headers = {name: value.format(port=served.port) for name, value in headers.items()}
    for path in ("/", STATE, "/code?" + SMALL.query(), "/page.js", "/measure"):
        method, body = ("POST", HOST) if path == "/measure" else ("GET", None)
        status, answered, body = served.ask(path, headers | {"X-Explore-Token": served.token}, method, body)
        assert status == 403 and body.startswith("refused: ") and served.token not in body and "gemm" not in body
        assert "access-control-allow-origin" not in answered
    assert not served.measured


def test_a_link_may_be_followed_from_anywhere_into_a_tab(served: Served) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert served.ask("/?" + SMALL.query(), followed)[0] == 200
    assert served.ask(STATE, followed)[0] == 403 and served.ask("/", followed, "POST")[0] == 403


@pytest.mark.thorough
def test_measuring_needs_the_token(served: Served) -> None:
    own = {"Origin": f"http://127.0.0.1:{served.port}"}
    before = len(served.measured)
    for token in ({}, {"X-Explore-Token": ""}, {"X-Explore-Token": "a" * 43}, {"X-Explore-Token": "\xe9"}):
        status, _, body = served.ask("/measure", own | token, "POST", HOST)
        assert status == 403 and "needs the token" in body
    assert served.ask("/measure?" + HOST)[0] == 405 and len(served.measured) == before
    own |= {"X-Explore-Token": served.token}
    while "being compiled" in (answer := served.ask("/measure", own, "POST", HOST))[2]:
        pass
    assert answer[0] == 200 and "<b>2 us</b> measured and verified" in answer[2] and len(served.measured) == before + 1
    assert "<b>2 us</b> measured" in served.ask("/state?" + HOST)[2]  # and it is remembered


def test_what_is_typed_is_bounded_and_nothing_of_it_is_run(served: Served) -> None:
    own = {"X-Explore-Token": served.token}
    assert served.ask("/measure", own, "POST", "x" * 100_000)[0] == 413
    assert served.ask("/?operator=" + "1" * 60_000)[0] in (400, 403)
    for text in ("__import__('os').getpid()", "gemm(m=2**99,n=1,k=1)", "gemm(m=9999999999,n=1,k=1)", "(" * 250, "gemm"):
        status, _, body = served.ask("/state?" + replace(SMALL, operator=text).query())
        assert status == 400 and 'class="refusal"' in body
    status, _, body = served.ask("/?" + replace(SMALL, operator="<b>").query())
    assert status == 400 and "<b>" not in body and "&lt;b&gt;" in body


def test_names_of_this_server_are_known_in_capitals_too() -> None:
    for name in (*NAMES, "LOCALHOST"):
        assert refusal("GET", "/", 10, {"host": f"{name}:80"}, 80) == refusal("GET", "/", 10, {"host": name}, 80) == ""
    assert "expected GET or POST" in refusal("PUT", "/", 10, {"host": "localhost:1"}, 1)


def test_only_this_machine_is_listened_to(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(listening(0)) as bound:
        name, port = bound.getsockname()
        assert name == "127.0.0.1"
        assert main(["--port", str(port), "--no-browser"]) == 2
        assert f"port {port} cannot be had" in capsys.readouterr().err
        with socket.socket() as other, pytest.raises(OSError):
            other.settimeout(0.2)
            other.connect(("127.0.0.2", port))


def test_where_the_extra_is_missing_it_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["--no-browser"]) == 2
    assert capsys.readouterr().err == "the explorer needs uvicorn: pip install 'gensor_gym[explore]'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gemmm(m=1)"], "did you mean gemm"), (["--machine", "h2000"], "unknown hardware 'h2000'"),
        (["--space", "al"], "no space 'al'"), (["--port", "99999"], "port 99999: expected 0 to 65535"),
        (["--seed", "-1"], "seed '-1'"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_said_in_a_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--no-browser"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
