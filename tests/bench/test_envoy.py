import json
from pathlib import Path

from bench import envoy


def test_the_configuration_leads_from_the_prefix_to_the_peer() -> None:
    config = envoy.config("envoy-a", "127.0.0.1:4711", "/to/echo", Path("access.log"))
    json.dumps(config)
    resources = config["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert route["match"] == {"prefix": "/to/echo/"}
    assert route["route"]["prefix_rewrite"] == "/"
    (cluster,) = resources["clusters"]
    assert cluster["name"] == route["route"]["cluster"]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 4711}


def test_it_logs_json_and_makes_request_ids_and_listens_on_loopback_only() -> None:
    config = envoy.config("envoy-b", "127.0.0.1:4711", "", Path("access.log"))
    listener = config["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert manager["generate_request_id"] is True
    assert "trace_id" in manager["access_log"][0]["typed_config"]["log_format"]["json_format"]
    assert listener["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 0}
    assert config["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
