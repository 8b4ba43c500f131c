"""Hosts with ports as headers write them."""

MAX_PORT = 65_535


def host_of(target: str) -> str:
    """The host of `host:port`, IPv6 without its brackets; all of it where there is no port."""
    host, colon, _ = target.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return target
    return host.removeprefix("[").removesuffix("]")


def port_of(target: str) -> int | None:
    """The port of `host:port`; None where there is none."""
    host, _, port = target.rpartition(":")
    if not host or (":" in host and not host.startswith("[")) or not (port.isascii() and port.isdigit()):
        return None
    number = int(port)
    return number if 0 < number <= MAX_PORT else None


def is_host_port(target: str) -> bool:
    """Whether it names a host and a port, and nothing that would lead elsewhere in a URL."""
    return port_of(target) is not None and bool(host_of(target)) and not any(c in target for c in "/?#@\\ \t")


def normalized(target: str) -> str:
    """Without the scheme that some routers put before it."""
    return target.strip().removeprefix("http://")
