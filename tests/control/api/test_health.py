async def test_health_on_every_listener_and_metrics_where_they_belong(start) -> None:
    node = await start(listen={"probe": "127.0.0.1:0"})
    probe = f"http://{node.addresses['probe']}"
    for base in (node.api, node.admin, probe):
        assert (await node.call("GET", f"{base}/livez")).json == {"status": "ok"}
        assert (await node.call("GET", f"{base}/readyz")).json == {"status": "ready"}
    for base in (node.admin, probe):
        assert "reach_control_agents" in (await node.call("GET", f"{base}/metrics")).json
    assert (await node.call("GET", f"{node.api}/metrics")).status == 404
    assert (await node.call("GET", f"{probe}/v1/peers", Host="10.1.2.3:9000")).status == 404
    assert (await node.call("GET", f"{probe}/livez", Host="10.1.2.3:9000")).status == 200


async def test_not_ready_says_why(node) -> None:
    node.control._is_ready = False
    answer = await node.call("GET", f"{node.api}/readyz")
    assert (answer.status, answer.json["status"]) == (503, "not_ready")
    assert "starting or stopping" in answer.json["detail"]
    node.control._is_ready = True
    next(task for task in node.control._tasks if task.get_name() == "lease watch").cancel()
    answer = await node.call("GET", f"{node.api}/readyz")
    while answer.status == 200:
        answer = await node.call("GET", f"{node.api}/readyz")
    assert "'lease watch' of this node has ended" in answer.json["detail"]
