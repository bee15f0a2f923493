#!/usr/bin/env -S python3 -B
"""Workers whose wall clocks differ by an hour, and change while they train."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
import cases  # pylint: disable=wrong-import-position

_TRAINER = os.path.join(os.getcwd(), "tests/integration/multi_worker/trainer")
_SKEWED_CLOCK = os.path.join(os.getcwd(), "tests/testing/libskewed_clock.so")


class Clocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, clocks, *flags):
        """Trains with a worker for each clock, (seconds ahead, after so many seconds): exit codes and outputs."""
        holders = [socket.create_server(("127.0.0.1", 0)) for _ in clocks]
        addresses = [f"127.0.0.1:{holder.getsockname()[1]}" for holder in holders]
        for holder in holders:
            holder.close()
        processes = []
        for rank, (skew, after) in enumerate(clocks):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            environment = dict(os.environ, TF_CONFIG=json.dumps(config), OMP_NUM_THREADS="1")
            environment.update(LD_PRELOAD=_SKEWED_CLOCK, SKEW=str(skew), SKEW_AFTER=str(after))
            with open(self.folder / str(rank), "wb") as file:
                process = subprocess.Popen(
                    [_TRAINER, *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            processes.append(process)
        codes = [process.wait(cases.DEADLINE) for process in processes]
        return codes, [(self.folder / str(rank)).read_text(encoding="utf-8") for rank in range(len(clocks))]

    def test_the_clock_is_skewed(self):
        environment = dict(os.environ, LD_PRELOAD=_SKEWED_CLOCK, SKEW="3600")
        here, there = (
            int(subprocess.check_output(["date", "+%s"], env=env, text=True)) for env in (None, environment)
        )
        self.assertAlmostEqual(there - here, 3600, delta=cases.SOON)

    def test_training_does_not_notice(self):
        results = []
        for clocks in ([(0, 0)] * 3, [(3600, 0), (-3600, 0), (0, 0)], [(-3600, 0.5), (3600, 0.5), (315360000, 0.5)]):
            codes, outputs = self.train(clocks, "--epochs=60")
            self.assertEqual(codes, [0] * 3, outputs)
            results += [line for output in outputs for line in output.splitlines() if line.startswith("weights=")]
        self.assertEqual(len(results), 9)
        self.assertEqual(len(set(results)), 1)

    def test_nor_do_the_survivors_of_a_killed_worker(self):
        codes, outputs = self.train([(3600, 0), (-3600, 0), (0, 0)], "--epochs=1000", "--harm=kill", "--victim=1")
        self.assertEqual(codes, [24, -9, 24], outputs)
        for rank in (0, 2):
            self.assertIn("(peer worker:1)", outputs[rank])


if __name__ == "__main__":
    sys.exit(cases.run())
