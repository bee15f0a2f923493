#!/usr/bin/env -S python3 -B
"""A Slurm of several nodes on this machine, for as long as one command runs:

  emulated_slurm.py [--nodes=4] [--cpus=4] COMMAND [ARGS...]
  emulated_slurm.py srun -N4 -n4 bazel-bin/strategies/cluster/check/cohort_cluster check

The daemons are the real ones: munged, slurmctld and one slurmd for each of the hosts n1, n2, ... All live in namespaces
of their own, and so does the command, on the host `login`: nothing outside sees them, and /etc/hosts and /etc/slurm are
theirs. When the command ends, or this process is killed, the kernel ends them all; no file is left.

Each host has its name, its network stack and an address (n1: 10.77.0.1) on a network that connects them: ports of two
hosts do not meet, and names lead where they would on a cluster. Processes, memory and disks are shared. On `login`, each
host's cable has its name: `ip link set n2 down` cuts n2 off.

Exits as the command does; 77, with the reason on stderr, where Slurm or the privileges it needs are missing. What the
daemons logged is on stderr when they fail, and in $TEST_UNDECLARED_OUTPUTS_DIR where that is set.

Python tests call `with_slurm(function)` instead.
"""

import argparse
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import cases
import hosts
from hosts import SKIPPED, Unavailable

_HOME = pathlib.Path("/etc/slurm")  # here a tmpfs hides what is there, and holds all files of the daemons
_PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "sinfo", "mount", "ip"]
_NETWORK = "10.77"
_LOGIN = _NETWORK + ".255.254"
_CONTROLLER_PORT = 6817


def _run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stdout.strip()}")


def _check_requirements():
    if os.geteuid() != 0:
        raise Unavailable("slurmd and mounts need root")
    if pathlib.Path("/proc/self/setgroups").read_text(encoding="ascii").strip() == "deny":
        raise Unavailable("slurmd needs setgroups, which this user namespace denies")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if missing:
        raise Unavailable(
            f"{', '.join(missing)} not installed (./dev setup installs slurmctld, slurmd, slurm-client and munge)"
        )
    if not _HOME.is_dir():
        raise Unavailable(f"{_HOME} is no folder")


def _controller_listens():
    with socket.socket() as client:
        return client.connect_ex((_LOGIN, _CONTROLLER_PORT)) == 0


class _Cluster:
    """The daemons of one Slurm; made in the namespaces that they shall live in."""

    def __init__(self, nodes, cpus):
        self._nodes = {f"n{i}": f"{_NETWORK}.0.{i}" for i in range(1, nodes + 1)}  # addresses by name
        self._cpus = cpus
        self._daemons = {}  # by name

    def start(self):
        _run("mount", "--make-rprivate", "/")
        _run("mount", "-t", "proc", "proc", "/proc")
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(_HOME))
        self._write_files()
        _run("mount", "--bind", str(_HOME / "hosts"), "/etc/hosts")
        hosts.ip(
            "link set lo up",
            "link add cluster type bridge",
            "link set cluster up",
            f"address add {_LOGIN}/16 dev cluster",
        )
        socket.sethostname("login")
        os.environ["SLURM_CONF"] = str(_HOME / "slurm.conf")
        self._start_daemon(
            "munged",
            "munged",
            "--foreground",
            f"--key-file={_HOME}/munge.key",
            f"--socket={_HOME}/munge.socket",
            f"--pid-file={_HOME}/munged.pid",
            f"--seed-file={_HOME}/munged.seed",
            "--log-file=/dev/stderr",
            "--num-threads=2",
        )
        self._wait("munged", lambda: (_HOME / "munge.socket").exists())
        self._start_daemon("slurmctld", "slurmctld", "-D")
        for name, address in self._nodes.items():
            self._start_daemon(name, "slurmd", "-D", enter=lambda n=name, a=address: hosts.enter(n, a))
            hosts.ip(f"link set {name} master cluster up")
        self._wait("slurmctld", _controller_listens)  # sinfo would retry for long
        self._wait("the nodes", lambda: self._node_states() == ["idle"] * len(self._nodes))

    def wait_for(self, pid):
        """Waits for a process, reaps all others that end meanwhile, and returns its exit status as a shell would."""
        while True:
            ended, status = os.wait()
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            for name, daemon in self._daemons.items():
                if ended == daemon.pid:
                    print(f"emulated_slurm: {name} has ended", file=sys.stderr)

    def keep_logs(self):
        folder = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
        if folder:
            for log in _HOME.glob("*.log"):
                shutil.copy(log, folder)

    def print_logs(self):
        for log in sorted(_HOME.glob("*.log")):
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)

    def _start_daemon(self, name, *command, enter=None):
        with open(_HOME / f"{name}.log", "wb") as log:
            self._daemons[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=enter
            )

    def _wait(self, what, condition):
        deadline = time.monotonic() + cases.DEADLINE
        while not condition():
            for name, daemon in self._daemons.items():
                if daemon.poll() is not None:
                    raise RuntimeError(f"{name} has ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} not ready after {cases.DEADLINE} s")
            time.sleep(0.02)

    def _node_states(self):
        return subprocess.run(
            ["sinfo", "--noheader", "--Node", "--format=%T"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        ).stdout.split()

    def _write_files(self):
        nodes = "".join(f"{address} {name}\n" for name, address in self._nodes.items())
        (_HOME / "hosts").write_text(f"127.0.0.1 localhost\n{_LOGIN} login\n" + nodes)
        key = _HOME / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(128))
        (_HOME / "slurm.conf").write_text(self._configuration())

    def _configuration(self):
        """With patience: the controller sends a signal once more when the answer is late, and a second one kills."""
        nodes = f"n[1-{len(self._nodes)}]"
        return f"""
ClusterName=emulated
SlurmctldHost=login
SlurmctldPort={_CONTROLLER_PORT}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={_HOME}/munge.socket
StateSaveLocation={_HOME}/state
SlurmdSpoolDir={_HOME}/spool-%n
SlurmctldPidFile={_HOME}/slurmctld.pid
SlurmdPidFile={_HOME}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MessageTimeout=100
NodeName={nodes} CPUs={self._cpus}
PartitionName=all Nodes={nodes} Default=YES OverSubscribe=NO
"""


def _live(function, cluster, refusals):
    """The life of the first process of the namespaces, with which all others end."""
    try:
        cluster.start()
    except (Unavailable, subprocess.SubprocessError) as reason:  # the latter from hosts.enter
        os.write(refusals, str(reason).encode())
        return SKIPPED
    except RuntimeError as error:
        print(f"emulated_slurm: {error}", file=sys.stderr)
        cluster.print_logs()
        return 1
    os.close(refusals)
    status = cluster.wait_for(hosts.fork(function))
    cluster.keep_logs()
    return status


def _live_apart(function, cluster, refusals):
    try:
        hosts.unshare(hosts.NEW_MOUNTS | hosts.NEW_HOST_NAME | hosts.NEW_IPC | hosts.NEW_PIDS | hosts.NEW_NETWORK)
    except Unavailable as reason:
        os.write(refusals, str(reason).encode())
        return SKIPPED
    pid = hosts.fork(lambda: _live(function, cluster, refusals))  # namespaces of process ids are for children only
    os.close(refusals)
    return hosts.wait_for(pid)


def with_slurm(function, nodes=4, cpus=4):
    """Calls `function` in a new process inside a new Slurm and returns what it returns, an exit status.

    Raises Unavailable, with the reason, where there can be no Slurm.
    """
    _check_requirements()
    reasons, refusals = os.pipe()
    pid = hosts.fork(lambda: _live_apart(function, _Cluster(nodes, cpus), refusals))
    os.close(refusals)
    with os.fdopen(reasons, encoding="utf-8") as file:
        reason = file.read()  # ends when the Slurm is up
    status = hosts.wait_for(pid)
    if reason:
        raise Unavailable(reason)
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cpus", type=int, default=4, help="of each node; more than there are is fine")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("no command is given")
    try:
        return with_slurm(lambda: subprocess.call(options.command), options.nodes, options.cpus)
    except Unavailable as reason:
        if os.environ.get("XML_OUTPUT_FILE"):  # a test of Bazel, which has no exit status for this
            return cases.skip_all(str(reason))
        print(f"emulated_slurm: skipped: {reason}", file=sys.stderr)
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
