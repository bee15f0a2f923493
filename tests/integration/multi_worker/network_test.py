#!/usr/bin/env -S python3 -B
"""Workers on hosts of their own, of which one is cut off: the others say so and end, and the job goes on."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
import cases  # pylint: disable=wrong-import-position
import hosts  # pylint: disable=wrong-import-position

_TRAINER = os.path.join(os.getcwd(), "tests/integration/multi_worker/trainer")
NAMES = ("h0", "h1", "h2")
_ADDRESSES = [f"10.78.0.{i + 1}" for i in range(len(NAMES))]
_DEADLINE = 60  # seconds
_EPOCHS = 5
# When survivors have ended, in seconds: 2.5 until the leader's system gives up a host, 5 until a silent leader counts as
# dead; and turns on a busy machine.
_UNREACHABLE, _SILENT = 7, 10


class Network(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, attempt, epochs=_EPOCHS):
        """The processes of a job that trains, a host each; attempts whose names begin alike go on where one was."""
        processes = []
        for rank, name in enumerate(NAMES):
            config = {
                "cluster": {"worker": [f"{address}:2222" for address in _ADDRESSES]},
                "task": {"type": "worker", "index": rank},
            }
            with open(self.folder / f"{attempt}-{rank}", "wb") as file:
                process = subprocess.Popen(
                    [_TRAINER, f"--epochs={epochs}", f"--backup={self.backup(attempt)}", "--save_freq=1"],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=dict(
                        os.environ, TF_CONFIG=json.dumps(config), COHORT_ALLOW_PLAINTEXT="1", OMP_NUM_THREADS="1"
                    ),
                    preexec_fn=lambda n=name, r=rank: hosts.enter(n, _ADDRESSES[r]),
                )
            self.addCleanup(self.end, process, name)
            processes.append(process)
            hosts.ip(f"link set {name} master cluster up")
        return processes

    def backup(self, attempt):
        return self.folder / attempt[:-1]

    @staticmethod
    def end(process, name):
        process.kill()
        process.wait()
        subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, check=False)  # or the kernel has

    def end_all(self, processes):
        for process, name in zip(processes, NAMES):
            self.end(process, name)

    def printed(self, attempt, rank):
        return (self.folder / f"{attempt}-{rank}").read_text(encoding="utf-8")

    def weights(self, attempt, processes):
        """What all have printed in the end."""
        for rank, process in enumerate(processes):
            self.assertEqual(process.wait(_DEADLINE), 0, self.printed(attempt, rank))
        weights = {line for rank in range(3) for line in self.printed(attempt, rank).splitlines() if "weights" in line}
        self.assertEqual(len(weights), 1)
        self.end_all(processes)
        return weights.pop()

    def wait_for(self, condition, attempt):
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.printed(attempt, 0))
            time.sleep(0.02)

    def cut_off(self, victim, cut, limit):
        """Cuts a host off while the job trains: the others name its worker and have ended in time, and it ends too."""
        processes = self.start("a1", epochs=100000)
        self.wait_for(lambda: any(self.backup("a1").glob("*")), "a1")
        began = time.monotonic()
        cut(NAMES[victim])
        ends = {}

        def note_ends():
            for rank, process in enumerate(processes):
                if process.poll() is not None:
                    ends.setdefault(rank, time.monotonic() - began)
            return len(ends) == len(processes)

        self.wait_for(note_ends, "a1")
        for rank, process in enumerate(processes):
            printed = self.printed("a1", rank)
            self.assertEqual(process.returncode, 24, printed)  # of UNAVAILABLE
            if rank != victim:
                self.assertIn(f"worker:{victim} ({_ADDRESSES[victim]}:2222)", printed)
                self.assertIn("has been silent for 2.5 s", printed)
                self.assertIn(f"(peer worker:{victim})", printed)
                self.assertLess(ends[rank], limit, printed)
        self.end_all(processes)

    def test_a_worker_whose_cable_is_cut(self):
        self.cut_off(2, lambda name: hosts.ip(f"link set {name} down"), _UNREACHABLE)
        weights = self.weights("a2", self.start("a2"))
        self.assertEqual(weights, self.weights("b1", self.start("b1")))

    def test_a_worker_in_a_black_hole(self):
        self.cut_off(2, lambda name: hosts.ip(f"link set {name} nomaster"), _UNREACHABLE)

    def test_an_outage_is_no_failure(self):
        for victim in NAMES:
            processes = self.start("a1", epochs=40)
            self.wait_for(lambda: any(self.backup("a1").glob("*")), "a1")
            hosts.ip(f"link set {victim} nomaster")
            time.sleep(1.5)  # the outage
            hosts.ip(f"link set {victim} master cluster")
            self.weights("a1", processes)
            shutil.rmtree(self.backup("a1"))

    def test_a_leader_whose_cable_is_cut(self):
        self.cut_off(0, lambda name: hosts.ip(f"link set {name} down"), _SILENT)

    def test_a_leader_in_a_black_hole(self):
        self.cut_off(0, lambda name: hosts.ip(f"link set {name} nomaster"), _SILENT)


if __name__ == "__main__":
    try:
        sys.exit(hosts.with_switch(cases.run))
    except hosts.Unavailable as unavailable:
        sys.exit(cases.skip_all(str(unavailable)))
