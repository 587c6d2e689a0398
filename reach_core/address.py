"""Addresses as text: `host:port`, and what counts as loopback."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

HOST_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62}))*\.?"
_HOST_NAME = re.compile(HOST_NAME)
_PORT = re.compile(r"[0-9]{1,5}")


def split_address(text: str) -> tuple[str, int]:
    """(host, port) of `host:port` or `[v6]:port`; the host without brackets. Raises ValueError with what is wrong."""
    host, colon, digits = text.rpartition(":")
    if not colon:
        raise ValueError(
            f"write host and port, such as 127.0.0.1:{text}" if _PORT.fullmatch(text) else "the port is missing"
        )
    if not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise ValueError("the port is a number from 0 to 65535")
    if not host or host == "*":
        raise ValueError(
            f"the host is missing: 127.0.0.1:{digits} is this machine only, 0.0.0.0:{digits} every address"
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError("brackets are for IPv6 addresses only")
    elif ":" in host:
        raise ValueError(f"an IPv6 address needs brackets: [{host}]:{digits}")
    return check_host(host), int(digits)


def check_host(host: str) -> str:
    """`host`, if it is an IP address or a host name. Raises ValueError."""
    digits_only = host.replace(".", "").isdigit()
    if ":" in host or digits_only:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError("that is not an IP address") from None
    elif len(host) > 253 or not _HOST_NAME.fullmatch(host):
        raise ValueError("that is not a host name")
    return host


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets where IPv6 needs them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: `localhost`, 127.0.0.0/8, ::1."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether `host` means every address of the machine: fine to listen on, nothing to call."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def split_base_url(text: str, schemes: tuple[str, ...]) -> SplitResult:
    """The parts of a URL that names a server and nothing else. Raises ValueError with what is wrong."""
    if any(c <= " " or c == "\x7f" for c in text):
        raise ValueError("a URL holds no spaces")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise ValueError("the host or the port is wrong") from None
    if url.scheme not in schemes:
        raise ValueError(f"it starts with {' or '.join(s + '://' for s in schemes)}")
    if not url.hostname:
        raise ValueError("the host is missing")
    if port == 0:
        raise ValueError("port 0 cannot be called")
    check_host(url.hostname)
    if url.path not in ("", "/") or url.query or url.fragment or text.endswith(("?", "#")):
        raise ValueError("only scheme, host and port belong here, no path")
    return url
