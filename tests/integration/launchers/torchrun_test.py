#!/usr/bin/env -S python3 -B
"""Programs that find the variables of torchrun, as it sets them for each process of a host."""

import os
import socket
import subprocess
import sys
import unittest

import cases
from programs import COHORT_CLUSTER, ROLLCALL, free_port, read_tasks, run


def variables(rank, size, port, **more):
    """What torchrun 2 gives a process."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def start(size, port, **more):
    """The tasks of a rollcall."""
    processes = [
        subprocess.Popen(
            [ROLLCALL], stdout=subprocess.PIPE, text=True, env=dict(os.environ, **variables(rank, size, port, **more))
        )
        for rank in range(size)
    ]
    return read_tasks("".join(process.communicate(timeout=cases.DEADLINE)[0] for process in processes))


class Torchrun(unittest.TestCase):
    def test_ranks_meet_at_the_leader(self):
        port = free_port()
        tasks = start(4, port)
        self.assertEqual({task["launcher"] for task in tasks}, {"torchrun"})
        self.assertEqual({task["leader"] for task in tasks}, {f"127.0.0.1:{port}"})
        self.assertEqual([task["local_rank"] for task in tasks], [0, 1, 2, 3])

    def test_the_leader_makes_way_for_the_store_of_torchrun(self):
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):  # torchrun itself
            tasks = start(2, port, TORCHELASTIC_USE_AGENT_STORE="True")
        self.assertEqual({task["leader"] for task in tasks}, {f"127.0.0.1:{port + 1}"})

    def test_names_what_is_missing_or_wrong(self):
        for name, value in [
            ("MASTER_ADDR", None),
            ("MASTER_PORT", None),
            ("MASTER_PORT", "29500x"),
            ("RANK", "4"),
            ("LOCAL_RANK", "-1"),
            ("LOCAL_WORLD_SIZE", "0"),
            ("WORLD_SIZE", ""),
        ]:
            environment = variables(3, 4, 29500)
            if value is None:
                del environment[name]
            else:
                environment[name] = value
            with self.subTest(name=name, value=value):
                settings = [f"{key}={text}" for key, text in environment.items()]
                self.assertIn(
                    name, run("env", "-i", *settings, COHORT_CLUSTER, "check", "--timeout=0", status=2).stderr
                )


if __name__ == "__main__":
    sys.exit(cases.run())
