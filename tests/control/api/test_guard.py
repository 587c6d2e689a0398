import pytest


@pytest.mark.parametrize("listener", ["api", "admin"])
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 421, "bad_host"),
        ({"Origin": "https://evil.example"}, 403, "not_allowed"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "not_allowed"),
        ({"Host": "localhost:7080"}, 200, None),
        ({"Host": "[::1]:7080"}, 200, None),
    ],
)
async def test_a_local_door_serves_programs_of_this_machine(
    node, listener: str, headers: dict[str, str], status: int, code: str | None
) -> None:
    answer = await node.call("GET", f"http://{node.addresses[listener]}/livez", **headers)
    assert answer.status == status
    assert answer.json.get("type") == (f"urn:reach:{code}" if code else None)


async def test_a_token_is_asked_for_where_one_is_set(start) -> None:
    node = await start(token="secret")
    assert (await node.call("GET", f"{node.admin}/v1/peers")).status == 403
    assert (await node.call("GET", f"{node.admin}/v1/peers", Reach_Api_Token="wrong")).status == 403
    assert (await node.call("GET", f"{node.admin}/v1/peers", Reach_Api_Token="secret")).status == 200
    assert (await node.call("GET", f"{node.admin}/v1/peers", Authorization="Bearer secret")).status == 200
    assert (await node.register()).status == 403
    assert (await node.call("GET", f"{node.api}/readyz")).status == 200


async def test_a_mistake_of_the_node_is_a_problem_too(node, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(node.control._service.registry, "count_by_status", broken)
    answer = await node.call("GET", f"{node.admin}/v1/status")
    assert (answer.status, answer.json["type"]) == (500, "urn:reach:internal_error")
    assert "boom" not in str(answer.json)


async def test_beyond_loopback_any_name_is_fine_but_no_web_page(start) -> None:
    node = await start(listen={"api": "0.0.0.0:0"}, insecure=True)
    url = f"http://127.0.0.1:{node.addresses['api'].rpartition(':')[2]}/livez"
    assert (await node.call("GET", url, Host="control.reach.svc.cluster.local")).status == 200
    assert (await node.call("GET", url, Host="control.svc", Origin="http://control.svc")).status == 403
