import socket
from typing import Any

import click
import pytest

from reach_cli.admin import Door, admin_door, find_sidecar, host_and_port, server_sent_events
from reach_cli.failure import Failed
from reach_cli.run_directory import note


def ready(port: int) -> dict[str, str]:
    return {"outbound": "127.0.0.1:1", "mesh": "127.0.0.1:2", "admin": f"127.0.0.1:{port}"}


def test_which_sidecar_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """--admin, then $REACH_ADMIN, then the only one noted, then the default port."""
    assert admin_door(None).url == "http://127.0.0.1:7072"
    note("sidecar", "one", ready(4001))
    note("control", "other", {"api": "127.0.0.1:3", "admin": "127.0.0.1:4"})
    assert admin_door(None).url == "http://127.0.0.1:4001"
    monkeypatch.setenv("REACH_ADMIN", "http://127.0.0.1:4002")
    assert admin_door(None).url == "http://127.0.0.1:4002"
    assert admin_door("127.0.0.1:4003").url == "http://127.0.0.1:4003"


def test_several_are_listed_rather_than_guessed() -> None:
    note("sidecar", "one", ready(4001))
    note("sidecar", "two", ready(4002))
    with pytest.raises(click.UsageError) as caught:
        admin_door(None)
    assert "--admin one   at http://127.0.0.1:4001" in caught.value.message
    assert "--admin two   at http://127.0.0.1:4002" in caught.value.message
    assert admin_door("two").url == "http://127.0.0.1:4002", "what it says works"
    assert admin_door("localhost").url == "http://localhost:80", "and other names are names of hosts"


def test_addresses() -> None:
    assert host_and_port("http://[::1]:7072") == ("::1", 7072)
    assert host_and_port("localhost") == ("localhost", 80)
    assert admin_door("http://[::1]:7072/").url == "http://[::1]:7072"
    for wrong in ("https://x", "http://", "http://x:99999", "http://x:y"):
        with pytest.raises(click.UsageError):
            host_and_port(wrong)


def test_nobody_answers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(Failed, match=r"does not answer at .*refused.*reach run"):
            Door(f"http://127.0.0.1:{closed.getsockname()[1]}").get("/v1/self")


def test_something_else_answers(no_http: str) -> None:
    with pytest.raises(Failed, match="does not speak HTTP"):
        Door(no_http).get("/v1/self")


def test_what_the_sidecar_says_is_passed_on(stand_in: Any) -> None:
    refused = {"type": "urn:reach:not_allowed", "detail": "This sidecar asks for a token."}
    stand_in.answers["/v1/peers"] = type(stand_in.answers["/v1/self"])(refused, 403)
    with pytest.raises(Failed, match="asks for a token"):
        Door(stand_in.url).get("/v1/peers")


def test_a_wrong_question_is_a_wrong_command_line(stand_in: Any) -> None:
    problem = {"type": "urn:reach:bad_request", "detail": "'banana' is not a duration."}
    stand_in.answers["/v1/logs"] = type(stand_in.answers["/v1/self"])(problem, 400)
    with pytest.raises(click.UsageError, match="banana"):
        Door(stand_in.url).get("/v1/logs", {"since": "banana"})


def test_another_listener_of_ours_is_told_from_the_one_meant(stand_in: Any) -> None:
    """The outbound listener answers too, but its hint about its own paths would lead nowhere."""
    problem = {"type": "urn:reach:not_found", "detail": "Nothing is served at /v1/nothing. GET /v1/openapi.json …"}
    stand_in.answers["/v1/nothing"] = type(stand_in.answers["/v1/self"])(problem, 404)
    with pytest.raises(Failed, match=r"answered 404\. Is that the sidecar's admin listener\? Check --admin"):
        Door(stand_in.url).get("/v1/nothing")


def test_an_answer_without_reasons_names_the_status(stand_in: Any) -> None:
    stand_in.answers["/v1/peers"] = type(stand_in.answers["/v1/self"])(b"oops", 500)
    with pytest.raises(Failed, match="answered 500"):
        Door(stand_in.url).get("/v1/peers")


def test_a_broken_answer(stand_in: Any) -> None:
    stand_in.answers["/v1/peers"] = type(stand_in.answers["/v1/self"])(b'{"agents": [', cut=10)
    with pytest.raises(Failed, match="broke off its answer"):
        Door(stand_in.url).get("/v1/peers")


def test_the_token_of_the_environment_is_sent(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACH_API_TOKEN", "s3cret")
    sidecar = find_sidecar(None)
    assert stand_in.asked[0].headers["Reach-Api-Token"] == "s3cret"
    assert sidecar.agent_id == "planner-01"
    assert sidecar.outbound.url == stand_in.url


def test_a_control_node_is_not_a_sidecar(stand_in: Any) -> None:
    stand_in.answers["/v1/self"] = type(stand_in.answers["/v1/self"])({"api": "127.0.0.1:1"})
    with pytest.raises(Failed, match="admin listener"):
        find_sidecar(None)


def test_server_sent_events() -> None:
    stream = b": hello\n\nevent: up\ndata: 1\ndata: 2\nid: 7\n\ndata:x\n\nevent: none\n\n"
    assert list(server_sent_events(stream.splitlines(keepends=True))) == [("up", "1\n2"), ("message", "x")]
