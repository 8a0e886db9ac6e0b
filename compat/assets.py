"""The programs of a test control plane, for compat/run and compat/figures."""

import subprocess

PROGRAMS = ["kube-apiserver", "etcd", "kubectl"]


def install(directory, binary, reference):
    """Writes the programs into `directory`: this server by three names, or links to the programs of `reference`."""
    if reference is None:
        subprocess.run([binary, "testing", "install", directory], check=True, stdout=subprocess.DEVNULL)
        return
    directory.mkdir()
    for program in PROGRAMS:
        (directory / program).symlink_to(reference / program)
