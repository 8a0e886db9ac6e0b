"""Tests of the package with a real server: `CLUSTER_APISERVER=… python3 -m pytest clients/python`."""

import datetime
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from cluster_apiserver_testing import Refused, Server, StartError

pytest_plugins = ["cluster_apiserver_testing.fixtures"]

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def make(server, name):
    return server.request("POST", CONFIG_MAPS, {"metadata": {"name": name}})[0]


def test_a_server_is_ready_and_leaves_nothing_behind():
    with Server() as server:
        assert make(server, "a") == 201
        directory, process = server.directory, pathlib.Path("/proc", str(server.pid))
    assert not directory.exists() and not process.exists()


@pytest.mark.parametrize("round", range(3))
def test_each_test_begins_with_an_empty_store(clean_apiserver, round):
    assert make(clean_apiserver, "a") == 201


def test_faults_and_the_record(clean_apiserver):
    server = clean_apiserver
    mark = server.mark()
    server.add_fault(match={"verbs": ["create"], "resources": ["configmaps"]}, count=1, error={"code": 409})
    assert [make(server, "a"), make(server, "a")] == [409, 201]
    record = server.requests_since(mark)
    codes = [item["code"] for item in record if (item["verb"], item["resource"]) == ("create", "configmaps")]
    assert codes == [409, 201]


def test_the_clock(clean_apiserver):
    server = clean_apiserver
    server.set_time(datetime.datetime(2031, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc))
    server.freeze()
    assert server.advance(minutes=1)["time"] == "2031-02-03T04:06:06.000Z" or server.clock()["frozen"]
    assert server.reset_clock()["frozen"] is False
    server.quiesce(0.05)


def test_a_killed_test_leaves_no_server():
    script = "import time, cluster_apiserver_testing as t; s = t.Server(); print(s.pid, s.directory, flush=True); time.sleep(60)"
    test = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid, directory = test.stdout.readline().split()
    test.kill()
    test.wait()
    deadline = time.monotonic() + 120
    while pathlib.Path("/proc", pid).exists():
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)
    shutil.rmtree(directory)


def test_errors_are_exceptions(apiserver):
    with pytest.raises(Refused) as refused:
        apiserver.restore("unknown")
    assert refused.value.code == 404
    with pytest.raises(StartError, match="no-such-flag"):
        Server("--no-such-flag")
    with pytest.raises(StartError, match="CLUSTER_APISERVER"):
        Server(program="/absent/cluster-apiserver")
