"""Plain HTTP to loopback, never through a proxy that the environment names."""

import http.client
import json
from typing import Any

WITHIN_S = 5.0


def request(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """(status, body) from `address` (host:port). Raises OSError when nothing listens or it breaks off."""
    connection = http.client.HTTPConnection(address, timeout=WITHIN_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{address} did not answer in HTTP: {error!r}") from error
    finally:
        connection.close()


def get_json(address: str, path: str) -> Any:
    """The parsed answer to a GET. Raises OSError also when the status is not 200."""
    status, body = request(address, "GET", path)
    if status != 200:
        raise ConnectionError(f"{address}{path} answered {status}")
    return json.loads(body)
