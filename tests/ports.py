"""Ports for servers that open them later, as other programs do."""

import random
import socket

PORTS = range(20_000, 32_000)
"""Below those a kernel gives to connections, of which one could come before the server does."""


def free_port() -> int:
    """Returns a port of the loopback interface that nobody listens on now."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
