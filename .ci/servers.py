"""Servers for the scripts of this directory."""

import contextlib
import random
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

# The users of the recorded answers.
TOKENS = 'admintoken1,admin,admin-uid,system:masters\nalicetoken2,alice,alice-uid,"devs,qa"\nbobtoken3,bob,bob-uid\n'
# Seconds for which the recorded server kept old revisions. Some recorded answers are about compacted revisions.
RETENTION = 20
# Longest time in seconds from the start of a server until it is ready.
READY_MAX = 120


def free_port():
    """A port that is free now. Other connections and listeners do not take it, because systems choose theirs from 32768 on."""
    while True:
        port = random.randrange(29000, 32768)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def start_like_recorded(binary, directory, port, *flags):
    """Starts a server with the flags of the recorded server, and with `flags`."""
    tokens = directory / "tokens.csv"
    tokens.write_text(TOKENS)
    log = open(directory / "log", "wb")
    return subprocess.Popen(
        [
            binary,
            "--naming=kubernetes",
            f"--data-dir={directory / 'data'}",
            f"--secure-port={port}",
            f"--token-auth-file={tokens}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--controllers=",
            "--disable-admission-plugins=ServiceAccount",
            f"--history-retention={RETENTION}s",
            *flags,
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=directory,
    )


def wait_until_ready(server, port):
    """Waits until a server is ready. Exits if the server ends, or if it is not ready after READY_MAX seconds."""
    context = ssl._create_unverified_context()
    limit = time.monotonic() + READY_MAX
    while time.monotonic() < limit:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode} before it was ready")
        try:
            urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=context, timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the server is not ready after {READY_MAX} s")
