"""Addresses that users write as "host:port", and hosts that need a token."""

from __future__ import annotations

import ipaddress


def url_of(address: str) -> str:
    """The URL of "host:port". A URL stays as it is."""
    return address if address.startswith(("http://", "https://", "unix:")) else f"http://{address}"


def is_loopback(host: str) -> bool:
    if host in ("", "localhost"):  # empty: no TCP
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def reject_open_host(host: str, has_token: bool, cure: str) -> None:
    """Raises ValueError if other machines could reach the server without a token."""
    if not has_token and not is_loopback(host):
        raise ValueError(
            f"host={host!r} without a token: everybody who reaches this machine could use the server. "
            f"Use host='127.0.0.1' for this machine only, or give {cure}"
        )


TOKEN_FILE = (
    "token_file='...', a file of mode 0600 with lines NAME:SECRET, and the client token='SECRET'. "
    "insecure=True serves without a token, for a network whose users you trust"
)
