"""The programs that the tests of this folder launch, and how."""

import json
import os
import socket
import subprocess

import cases

_ROOT = os.getcwd()  # Bazel starts tests where the paths of BUILD files begin
COHORT_CLUSTER = os.path.join(_ROOT, "strategies/cluster/cohort_cluster")
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
    """A port of this host at which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
