"""Starts a cluster-apiserver for each test of a controller, and controls its test features.

    with Server() as server:
        kubernetes.config.load_kube_config(server.kubeconfig)
        server.add_fault(match={"verbs": ["update"]}, count=3, error={"code": 409})
        server.advance(hours=1)

The server is the program cluster-apiserver. The environment variable CLUSTER_APISERVER has the path of the program;
without the variable, the program must be in the search path. The server listens on a free port of 127.0.0.1, and has
its store in a temporary directory. The package uses only the standard library. Tests that use pytest also have the
fixtures `apiserver` and `clean_apiserver`.
"""

from .server import Refused, Server, StartError

__all__ = ["Refused", "Server", "StartError"]
