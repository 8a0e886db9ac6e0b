"""Fixtures for pytest. If the package is installed, pytest loads this module automatically."""

import pytest

from .server import Server


@pytest.fixture(scope="session")
def apiserver():
    """A server that all tests of the session share."""
    with Server() as server:
        # Wait until the controllers have created their objects in the first namespaces.
        server.quiesce()
        server.save("apiserver-empty")
        yield server


@pytest.fixture
def clean_apiserver(apiserver):
    """The shared server with an empty store, no fault rules, and the time of the machine."""
    apiserver.clear_faults()
    apiserver.reset_clock()
    apiserver.restore("apiserver-empty")
    yield apiserver
    apiserver.clear_faults()
    apiserver.reset_clock()
