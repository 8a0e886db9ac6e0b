"""The server process, and a client of its test features."""

import base64
import datetime
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse

PATIENCE_S = 30
LOOK_S = 0.05


class StartError(Exception):
    """The server did not start."""


class Refused(Exception):
    """The server responded with an error. `code` is the HTTP status code, and `text` is the response body."""

    def __init__(self, call, code, text):
        super().__init__(f"{call}: status {code}: {text}")
        self.code = code
        self.text = text


class Server:
    """A server process that starts with an empty store. `stop` or the end of a `with` statement ends the process."""

    def __init__(self, *flags, program=None, naming="kubernetes", keep_directory=False):
        """Starts a server, and waits until the server is ready. `flags` are further flags of the server."""
        self.program = program or os.environ.get("CLUSTER_APISERVER") or "cluster-apiserver"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cluster-apiserver-"))
        self.kubeconfig = str(self.directory / "data" / "admin.kubeconfig")
        self._keep = keep_directory
        self._process = None
        try:
            self._start(naming, flags)
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _start(self, naming, flags):
        path = str(self.directory / "ready")
        # The server sends a message when it is ready, as to systemd, so polling is not necessary.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(self.directory / "log", "wb") as log:
            ready.bind(path)
            ready.settimeout(LOOK_S)
            command = [
                self.program,
                f"--data-dir={self.directory / 'data'}",
                f"--naming={naming}",
                "--secure-port=free",
                "--durability=relaxed",
                "--testing",
                "--exit-with-parent",
                *flags,
            ]
            environment = {**os.environ, "NOTIFY_SOCKET": path}
            try:
                self._process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            except OSError as error:
                raise StartError(
                    f"cannot start {self.program}: {error}; set CLUSTER_APISERVER to the path of the program"
                ) from error
            self._until_ready(ready)
        self._read_kubeconfig()

    def _until_ready(self, ready):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if ready.recv(256).startswith(b"READY=1"):
                    return
            except socket.timeout:
                pass
            if self._process.poll() is not None:
                raise StartError(f"the server ended with {self._process.returncode}; its log:\n{self.log()}")
            if time.monotonic() > deadline:
                raise StartError(f"the server was not ready after {PATIENCE_S} s; its log:\n{self.log()}")

    def _read_kubeconfig(self):
        """Reads the address and the credentials from the kubeconfig. The server writes one member per line, so this
        method needs no YAML parser."""
        members = {}
        for line in pathlib.Path(self.kubeconfig).read_text().splitlines():
            name, colon, value = line.lstrip("- ").partition(":")
            if colon:
                members[name.strip('"')] = value.strip().rstrip(",").strip('"')
        self.url = members["server"]
        decoded = {
            name: base64.b64decode(members[name])
            for name in ("certificate-authority-data", "client-certificate-data", "client-key-data")
        }
        context = ssl.create_default_context(cadata=decoded["certificate-authority-data"].decode())
        # The module ssl can read a client certificate only from a file.
        certificate = self.directory / "client.pem"
        certificate.touch(mode=0o600)
        certificate.write_bytes(decoded["client-certificate-data"] + b"\n" + decoded["client-key-data"])
        context.load_cert_chain(certificate)
        self.ssl_context = context

    @property
    def pid(self):
        """The id of the server process."""
        return self._process.pid

    def log(self):
        """Returns the log of the server so far."""
        return (self.directory / "log").read_text(errors="replace")

    def stop(self):
        """Kills the process and removes its directory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def request(self, method, path, body=None):
        """Sends a request with the rights of the administrator. Returns the status code and the response body."""
        address = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=self.ssl_context, timeout=PATIENCE_S + 30
        )
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _call(self, method, path, body=None):
        code, text = self.request(method, path, body)
        if code != 200:
            raise Refused(f"{method} {path}", code, text.decode(errors="replace"))
        return json.loads(text)

    def clock(self):
        """Returns a dictionary with the `time` of the server, whether the time is `frozen`, and the duration by which
        it is `ahead` of the clock of the machine."""
        return self._call("GET", "/testing/clock")

    def set_time(self, to):
        """Sets the time of the server. `to` is a text in RFC 3339, or a datetime with a time zone."""
        text = to.isoformat() if isinstance(to, datetime.datetime) else to
        return self._call("PUT", "/testing/clock", {"time": text})

    def advance(self, **by):
        """Moves the time of the server forward. The arguments are those of a timedelta: `advance(hours=1)`."""
        return self._call("PUT", "/testing/clock", {"advance": _duration(datetime.timedelta(**by))})

    def freeze(self, frozen=True):
        """Freezes the time of the server, or lets it run again."""
        return self._call("PUT", "/testing/clock", {"frozen": frozen})

    def reset_clock(self):
        """Makes the time of the server follow the clock of the machine again."""
        return self._call("DELETE", "/testing/clock")

    def add_fault(self, **rule):
        """Adds a rule, and returns its number. The arguments are the fields of a rule in docs/api/testing.md, such as
        `match`, `skip`, `count`, `delay`, `error`, `close`, `staleAt` and `watch`."""
        return self._call("POST", "/testing/faults", rule)["id"]

    def remove_fault(self, number):
        """Removes the rule with this number."""
        self._call("DELETE", f"/testing/faults/{number}")

    def clear_faults(self):
        """Removes all rules."""
        self._call("DELETE", "/testing/faults")

    def disturb_watches(self, effect, **match):
        """Disturbs all open watches that match, and returns the number of these watches. The effect is stall, resume,
        close, break or expire."""
        return self._call("POST", "/testing/watches", {"match": match, "effect": effect})["disturbed"]

    def mark(self):
        """Returns the current position in the record of requests."""
        return self._call("GET", "/testing/requests")["mark"]

    def requests_since(self, mark):
        """Returns the recorded requests after a mark, with their bodies."""
        requests = []
        while True:
            part = self._call("GET", f"/testing/requests?bodies=true&since={mark}")
            if not part["items"]:
                return requests
            requests += part["items"]
            mark = part["mark"]

    def quiesce(self, quiet_s=0.1, timeout_s=10.0):
        """Waits until no object was written for `quiet_s` seconds and every watch has sent all events. Returns the
        newest resource version."""
        wanted = {"for": f"{int(quiet_s * 1e9)}ns", "timeout": f"{int(timeout_s * 1e9)}ns"}
        return self._call("POST", "/testing/quiescence", wanted)["resourceVersion"]

    def save(self, name):
        """Saves a snapshot of all objects under a name."""
        return self._call("PUT", f"/testing/snapshots/{urllib.parse.quote(name, safe='')}")

    def restore(self, name):
        """Restores a snapshot, and returns the number of objects that were written or deleted. Watches end with 410,
        so that informers list again."""
        return self._call("POST", f"/testing/snapshots/{urllib.parse.quote(name, safe='')}/restore")["writes"]


def _duration(delta):
    return f"{delta // datetime.timedelta(microseconds=1)}us"
