"""Hosts on this machine: network stacks of their own, with cables between them, made of the kernel's namespaces."""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys

SKIPPED = 77  # the exit status of a test that could not run
NEW_MOUNTS, NEW_HOST_NAME, NEW_IPC, NEW_USERS = 0x20000, 0x4000000, 0x8000000, 0x10000000
NEW_PIDS, NEW_NETWORK = 0x20000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):
    """Why a test cannot run here."""


def unshare(namespaces):
    if _libc.unshare(namespaces) != 0:
        raise Unavailable("no new namespaces: " + os.strerror(ctypes.get_errno()))


def _run(arguments, what, commands=""):
    """Of a tool of the network, which may not do `what` here."""
    done = subprocess.run(
        arguments,
        input=commands,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"{what}: {done.stdout.strip()}")


def ip(*commands):
    """Runs commands of ip(8)."""
    _run(["ip", "-batch", "-"], f"ip {'; '.join(commands)}", "\n".join(commands))


def enter(name, address):
    """Makes this process the first of a host with a name and a network of its own, cabled to that of process 1."""
    unshare(NEW_HOST_NAME | NEW_NETWORK)
    socket.sethostname(name)
    ip(
        "link set lo up",
        f"link add eth0 type veth peer name {name} netns 1",
        f"address add {address}/16 dev eth0",
        "link set eth0 up",
    )


def _exit_with(function):
    """Ends this process with the exit status that `function` returns, and never returns to where it was forked."""
    status = 1
    try:
        status = function()
    except SystemExit as end:
        status = end.code
    except BaseException:  # pylint: disable=broad-except
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def fork(function):
    """Runs `function` in a new process, which the kernel kills when this one has ended; returns its id."""
    alive, life = os.pipe()  # `alive` ends with this process
    pid = os.fork()
    if pid == 0:
        os.close(life)
        _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if select.select([alive], [], [], 0)[0]:
            os._exit(1)  # it ended before that
        _exit_with(function)
    os.close(alive)
    return pid


def wait_for(pid):
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


def slow_down(device, rate):
    """Has a device of the network send no more than that in a second: "1mbit"."""
    limit = ["tbf", "rate", rate, "burst", "4kb", "latency", "1s"]
    _run(["tc", "qdisc", "add", "dev", device, "root", *limit], f"no device {device} that sends {rate}")


def on_host_of(pid, function):
    """Calls a function, in a process of its own, on the host of a process."""

    def run():
        if _libc.setns(os.pidfd_open(pid), NEW_NETWORK) != 0:
            raise Unavailable("cannot join a network: " + os.strerror(ctypes.get_errno()))
        function()
        return 0

    if wait_for(fork(run)) != 0:
        raise Unavailable(f"it cannot be done on the host of process {pid}, as printed above")


def ip_on_host_of(pid, *commands):
    """Runs commands of ip(8) on the host of a process."""
    on_host_of(pid, lambda: ip(*commands))


def _live(function, refusals):
    """The life of the first process of the namespaces, with which all others end."""
    try:
        ip("link set lo up", "link add cluster type bridge", "link set cluster up")
    except Unavailable as reason:
        os.write(refusals, str(reason).encode())
        return SKIPPED
    os.close(refusals)
    return function()


def _live_apart(function, refusals):
    try:
        if os.geteuid() != 0:
            ids = os.geteuid(), os.getegid()
            unshare(NEW_USERS)
            for path, text in (("setgroups", "deny"), ("uid_map", f"0 {ids[0]} 1"), ("gid_map", f"0 {ids[1]} 1")):
                with open(f"/proc/self/{path}", "w", encoding="ascii") as file:
                    file.write(text)
        unshare(NEW_HOST_NAME | NEW_PIDS | NEW_NETWORK)
    except (Unavailable, OSError) as reason:
        os.write(refusals, str(reason).encode())
        return SKIPPED
    pid = fork(lambda: _live(function, refusals))  # namespaces of process ids are for children only
    os.close(refusals)
    return wait_for(pid)


def with_switch(function):
    """Calls `function` in a new process, the first of a new network that has a switch, the bridge `cluster`.

    Returns what it returns, an exit status; all processes that it has started are gone then. A process whose
    preexec_fn is enter() is a host: `link set NAME master cluster up` plugs its cable in. Raises Unavailable, with the
    reason, where there can be no such network.
    """
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    reasons, refusals = os.pipe()
    pid = fork(lambda: _live_apart(function, refusals))
    os.close(refusals)
    with os.fdopen(reasons, encoding="utf-8") as file:
        reason = file.read()
    status = wait_for(pid)
    if reason:
        raise Unavailable(reason)
    return status
