#!/usr/bin/env -S python3 -B
"""A worker that is started again, alone, while the others train: they end in time, it waits, and then all go on."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
import cases  # pylint: disable=wrong-import-position

_TRAINER = os.path.join(os.getcwd(), "tests/integration/multi_worker/trainer")
_UNAVAILABLE = 24


class Restarts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addresses = [f"127.0.0.1:{self.reserved_port()}" for _ in range(3)]

    def reserved_port(self):
        """A port that the kernel gives nobody else until the test ends: bound beside those that ask for it by name."""
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]

    def start(self, attempt, rank, loop):
        """A worker; attempts whose names begin alike go on where one was."""
        config = {"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": rank}}
        with open(self.folder / f"{attempt}-{rank}", "wb") as file:
            process = subprocess.Popen(
                [_TRAINER, "--epochs=40", f"--loop={loop}", f"--backup={self.backup(attempt)}", "--save_freq=1"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, TF_CONFIG=json.dumps(config), OMP_NUM_THREADS="1"),
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def backup(self, attempt):
        return self.folder / attempt[:-1]

    def printed(self, attempt, rank):
        return (self.folder / f"{attempt}-{rank}").read_text(encoding="utf-8")

    def weights(self, attempt, processes):
        """What all have printed in the end."""
        for rank, process in enumerate(processes):
            self.assertEqual(process.wait(cases.DEADLINE), 0, self.printed(attempt, rank))
        (weights,) = {re.search("weights=.*", self.printed(attempt, rank)).group() for rank in range(3)}
        return weights

    def restart(self, loop, harm, code, words):
        """Harms worker:1 while all train, and starts it again: it ends with `code`, and the others, who name it."""
        undisturbed = self.weights("b1", [self.start("b1", rank, loop) for rank in range(3)])
        processes = [self.start("a1", rank, loop) for rank in range(3)]
        deadline = time.monotonic() + cases.DEADLINE
        while not any(self.backup("a1").glob("*.safetensors")):
            self.assertLess(time.monotonic(), deadline, self.printed("a1", 0))
            time.sleep(0.01)
        processes[1].send_signal(harm)
        again = self.start("a2", 1, loop)
        deadline = time.monotonic() + cases.SOON
        for rank in (0, 2):
            processes[rank].wait(max(deadline - time.monotonic(), 0))
            self.assertEqual(processes[rank].returncode, _UNAVAILABLE, self.printed("a1", rank))
            self.assertRegex(self.printed("a1", rank), rf"error: UNAVAILABLE: .*{words}.*\(peer worker:1\)")
        processes[1].send_signal(signal.SIGCONT)
        self.assertEqual(processes[1].wait(cases.DEADLINE), code, self.printed("a1", 1))
        self.assertIsNone(again.poll(), self.printed("a2", 1))
        self.assertEqual(self.weights("a2", [self.start("a2", 0, loop), again, self.start("a2", 2, loop)]), undisturbed)

    def test_while_its_old_self_is_frozen_in_fit(self):
        self.restart("fit", signal.SIGSTOP, _UNAVAILABLE, rf"worker:1 \({self.addresses[1]}\) was started again")

    def test_after_it_was_killed_in_a_loop_of_its_own(self):
        self.restart("own", signal.SIGKILL, -signal.SIGKILL, "worker:1")


if __name__ == "__main__":
    sys.exit(cases.run())
