"""The local API as an OpenAPI 3.1 document, made from the types that decode and answer it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from reach_core import __version__
from reach_core.problem import KINDS
from reach_sidecar.listen import local_api_types as types
from reach_sidecar.policy.attributes import MAX_LENGTH, PATTERN

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_TYPES = [
    types.AgentList, types.Agent, types.Self, types.Ready, types.RegisterAgent, types.Registered,
    types.AgentHeartbeat, types.HeartbeatOk, types.RegisteredAgent, types.Health, types.RunTask,
    types.ProblemDocument,
]  # fmt: skip
_ANY_REQUEST = (403, 414, 421, 431, 500)
_CALL_STATUSES = (400, 404, 409, 413, 422, 429, 502, 503, 504)



def document() -> Schema:
    """The whole document, ready to be written as JSON."""
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agent-Reach local API",
            "version": __version__,
            "description": "What a sidecar offers to the agent beside it on 127.0.0.1:7070. Calls of a "
            "capability go to the same address: `POST /to/<capability>/…`, the header `Reach-Target`, or the "
            "host `<capability>.reach`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7070"}],
        "tags": [
            {"name": "peers", "description": "Who is there"},
            {"name": "sidecar", "description": "This sidecar itself"},
            {"name": "articles", "description": "The articles' interface: success is exactly 200"},
        ],
        "paths": _paths(),
        "components": {"schemas": components, "responses": {"Problem": _problem()}},
    }


def _paths() -> Schema:
    capability = _query("capability", "Only agents that offer it, by name or alias, however it is spelled.",
                        {"type": "string"})
    require = _query("require", "Attributes that must match: `language=python, version>=3.11`. At most "
                     f"{MAX_LENGTH} characters.", {"type": "string", "pattern": PATTERN})
    timeout = _query("timeout", "How long to wait at most.",
                     {"type": "string", "pattern": "^([0-9]{1,6}(\\.[0-9]{1,3})?(ms|s|m|h))+$", "default": "30s"})
    agent_id = {"name": "agent_id", "in": "path", "required": True, "description": "The agent's id.",
                "schema": {"type": "string", "minLength": 1}}
    last_event = {"name": "Last-Event-ID", "in": "header", "description": "The id of the last event that was seen.",
                  "schema": {"type": "string", "pattern": "^[!-~]*$"}}
    return {
        "/v1/agents": _get("listAgents", "peers", "Peers now, with status, load, and why one is excluded.",
                           types.AgentList, [capability, require], (400,)),
        "/v1/agents/{agent_id}": _get("getAgent", "peers", "One peer.", types.Agent, [agent_id], (400, 404)),
        "/v1/watch": {"get": {
            "operationId": "watchAgents", "tags": ["peers"],
            "summary": "The same as server-sent events.",
            "description": "Events `up` (may be called from now on), `down` (no longer) and `changed` (anything "
            "else, load included), each with an agent as its data. It begins with an event for every agent; with "
            "a `Last-Event-ID` that is still known it goes on behind that.",
            "parameters": [capability, last_event],
            "responses": {"200": {
                "description": "A stream that does not end.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}}}, **_problems((400,))},
        }},
        "/v1/self": _get("getSelf", "sidecar", "Who am I?", types.Self, [], ()),
        "/v1/wait": _get("waitUntilReady", "sidecar", "Blocks until the mesh is ready.", types.Ready, [timeout],
                         (400, 504)),
        "/v1/openapi.json": {"get": {
            "operationId": "getOpenApi", "tags": ["sidecar"], "summary": "This document.",
            "responses": {"200": {"description": "OpenAPI 3.1",
                                  "content": {"application/json": {"schema": {"type": "object"}}}},
                          **_problems((400,))},
        }},
        "/agents/register": _post("registerAgent", "Declare or change the local agent.", types.RegisterAgent,
                                  types.Registered, (400, 409, 413)),
        "/agents/heartbeat": _post("heartbeat", "Say that the local agent is alive.", types.AgentHeartbeat,
                                   types.HeartbeatOk, (400, 404, 413)),
        "/agents/{agent_id}": _get("getRegisteredAgent", "articles", "One peer, with the articles' names.",
                                   types.RegisteredAgent, [agent_id], (400, 404)),
        "/tasks/run": _run(),
        "/internal/health": _get("getHealth", "articles", "Is the sidecar alive?", types.Health, [], ()),
    }


def _run() -> Schema:
    run = _post("runTask", "Call a capability and wait for the answer.", types.RunTask, None, ())
    run["post"]["description"] = (
        "The agent gets `{task, task_id, trace_id}` as `POST /process`, over the same path as every call. The "
        "answer is the agent's own; errors of Agent-Reach itself are `application/problem+json`."
    )
    run["post"]["responses"] = {
        "200": {"description": "The agent's own answer.", "content": {"application/json": {"schema": {}}}},
        **_problems(_CALL_STATUSES),
        "default": {"description": "The agent's own answer, with its own status, where it is no success."},
    }
    return run


def _get(operation: str, tag: str, summary: str, answer: type, parameters: list[Schema],
         problems: Sequence[int]) -> Schema:
    return {"get": {
        "operationId": operation,
        "tags": [tag],
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": _answer(answer), **_problems({400, *problems})},
    }}


def _post(operation: str, summary: str, body: type, answer: type | None, problems: Sequence[int]) -> Schema:
    return {"post": {
        "operationId": operation,
        "tags": ["articles"],
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(body)}}},
        "responses": {**({} if answer is None else {"200": _answer(answer)}), **_problems(problems)},
    }}


def _answer(answer: type) -> Schema:
    summary = (answer.__doc__ or answer.__name__).strip().splitlines()[0]
    return {"description": summary, "content": {"application/json": {"schema": _ref(answer)}}}


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _ref(kind: type) -> Schema:
    return {"$ref": _REF.format(name=kind.__name__)}


def _problems(statuses: Sequence[int] | set[int]) -> Schema:
    """The door's own refusals and a mistake of ours (500) can answer any request."""
    return {str(status): {"$ref": "#/components/responses/Problem"} for status in sorted({*_ANY_REQUEST, *statuses})}


def _problem() -> Schema:
    codes = ", ".join(f"`{code}`" for code in sorted(KINDS))
    return {
        "description": f"An error of Agent-Reach itself. `type` is `urn:reach:` and one of {codes}.",
        "headers": {"Proxy-Status": {"description": "RFC 9209", "schema": {"type": "string"}}},
        "content": {"application/problem+json": {"schema": _ref(types.ProblemDocument)}},
    }
