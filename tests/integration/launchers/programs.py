"""The programs that the tests of this folder launch, and how."""

import contextlib
import json
import os
import random
import socket
import subprocess

import cases

_ROOT = os.getcwd()  # Bazel starts tests where the paths of BUILD files begin
COHORT_CLUSTER = os.path.join(_ROOT, "strategies/cluster/check/cohort_cluster")
COHORT_RUN = os.path.join(_ROOT, "strategies/cluster/launcher/cohort_run")
ROLLCALL = os.path.join(_ROOT, "tests/integration/launchers/rollcall")
TRAINER = os.path.join(_ROOT, "tests/integration/multi_worker/trainer")
EXAMPLES = os.path.join(_ROOT, "examples/cluster")


class Failed(AssertionError):
    """A program ended otherwise than it should, or never."""


def run(*command, status=0, environment=None):
    """Runs a command to its end, which must be `status`; returns what it printed: a CompletedProcess with texts."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=cases.DEADLINE,
            check=False,
            env=dict(os.environ, **(environment or {})),
        )
    except subprocess.TimeoutExpired as expired:
        raise Failed(
            f"{' '.join(command)}: not at an end after {cases.DEADLINE} s; printed {expired.stdout} {expired.stderr}"
        ) from None
    if done.returncode != status:
        raise Failed(
            f"{' '.join(command)}: ended with {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
        )
    return done


def read_tasks(output):
    """What the tasks of a rollcall printed, by rank; each rank of 0, 1, ... must be there once."""
    tasks = sorted(
        (json.loads(line) for line in output.splitlines() if line.startswith("{")), key=lambda task: task["rank"]
    )
    if not tasks or [task["rank"] for task in tasks] != list(range(tasks[0]["size"])):
        raise Failed(f"expected a line of each rank, found\n{output}")
    return tasks


def rollcall(*launcher, environment=None):
    """The tasks of a rollcall under a launcher, such as "srun", "-n4". They have called each other by then."""
    return read_tasks(run(*launcher, ROLLCALL, environment=environment).stdout)


def free_port():
    """A port of this host at which nobody listens now, nor at the next one.

    Below those that the system hands out, of which any connection may be given one before the program has it.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        handed_out = int(file.read().split()[0])
    for _ in range(100):
        port = random.randrange(10000, max(handed_out, 20000) - 1)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            with socket.create_server(("127.0.0.1", port + 1)):
                return port
    raise Failed("found no two ports of 127.0.0.1 at which nobody listens")
