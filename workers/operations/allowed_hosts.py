"""The host names that a server of ours answers to, as a defence against DNS rebinding.

In that attack a name of the attacker's resolves to 127.0.0.1, and the browser sends that name in the Host header.
"""

import ipaddress
from collections.abc import Collection


def answers_to(host: str | None, own: str, allowed: Collection[str]) -> bool:
    """Whether a request's Host header names this server.

    Args:
        host: the header, with or without a port; None: there is none, or more than one.
        own: the address that the client reached.
        allowed: more names it may have, without a port, in any case.
    """
    name = _name(host or "")
    return name is not None and (name == "localhost" or name in map(str.lower, allowed) or _same(name, own))


def _name(host: str) -> str | None:
    """The name in a Host header, in lower case; None if the header is not valid."""
    if host.startswith("["):
        name, closed, port = host[1:].partition("]")
        port = port.removeprefix(":") if closed else "?"
    else:
        name, _, port = host.partition(":")
    return name.lower().removesuffix(".") if name and ((port.isascii() and port.isdecimal()) or not port) else None


def _same(name: str, own: str) -> bool:
    if name == own:
        return True
    try:
        found, address = ipaddress.ip_address(name), ipaddress.ip_address(own.partition("%")[0])  # without its scope
    except ValueError:
        return False
    return found.is_loopback or found in (address, getattr(address, "ipv4_mapped", None))
