#!/usr/bin/env -S python3 -B
"""Tasks whose wall clocks differ by hours and years, and change while they train."""

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
import programs  # pylint: disable=wrong-import-position

_SKEWED_CLOCK = os.path.join(os.getcwd(), "tests/testing/libskewed_clock.so")
_TEN_YEARS = 315360000


def skewed(skew, after):
    """The environment of a program whose clock is so many seconds ahead, after so many seconds."""
    return {"LD_PRELOAD": _SKEWED_CLOCK, "SKEW": str(skew), "SKEW_AFTER": str(after), "OMP_NUM_THREADS": "1"}


class Clocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_job(self, clocks, program, *flags):
        """Runs a job with a task for each clock, (seconds ahead, after so many seconds): exit codes and outputs.

        `clocks` has them by the kind of task.
        """
        holders = {kind: [socket.create_server(("127.0.0.1", 0)) for _ in of_kind] for kind, of_kind in clocks.items()}
        cluster = {
            kind: [f"127.0.0.1:{holder.getsockname()[1]}" for holder in of_kind] for kind, of_kind in holders.items()
        }
        for holder in sum(holders.values(), []):
            holder.close()
        processes = {}
        for kind, of_kind in clocks.items():
            for index, clock in enumerate(of_kind):
                config = {"cluster": cluster, "task": {"type": kind, "index": index}}
                file = self.folder / f"{kind}{index}"
                with open(file, "wb") as out:
                    process = subprocess.Popen(
                        [program, *flags],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env=dict(os.environ, TF_CONFIG=json.dumps(config), **skewed(*clock)),
                    )
                self.addCleanup(process.wait)
                self.addCleanup(process.kill)
                processes[file] = process
        codes = [process.wait(cases.DEADLINE) for process in processes.values()]
        return codes, [file.read_text(encoding="utf-8") for file in processes]

    def train(self, clocks, *flags):
        return self.run_job({"worker": clocks}, programs.TRAINER, *flags)

    def test_the_clock_is_skewed(self):
        environment = dict(os.environ, **skewed(3600, 0))
        here, there = (
            int(subprocess.check_output(["date", "+%s"], env=env, text=True)) for env in (None, environment)
        )
        self.assertAlmostEqual(there - here, 3600, delta=cases.SOON)

    def test_training_does_not_notice(self):
        results = []
        for clocks in (
            [(0, 0)] * 3,
            [(3600, 0), (-3600, 0), (0, 0)],
            [(-3600, 0.5), (3600, 0.5), (_TEN_YEARS, 0.5)],
            [(0, 0), (-_TEN_YEARS, 0), (-_TEN_YEARS, 0.5)],
        ):
            codes, outputs = self.train(clocks, "--epochs=60")
            self.assertEqual(codes, [0] * 3, outputs)
            results += [line for output in outputs for line in output.splitlines() if line.startswith("weights=")]
        self.assertEqual(len(results), 12)
        self.assertEqual(len(set(results)), 1)

    def test_nor_do_the_survivors_of_a_killed_worker(self):
        codes, outputs = self.train([(3600, 0), (-3600, 0), (0, 0)], "--epochs=1000", "--harm=kill", "--victim=1")
        self.assertEqual(codes, [24, -9, 24], outputs)
        for rank in (0, 2):
            self.assertIn("(peer worker:1)", outputs[rank])

    def test_nor_do_parameter_servers(self):
        clocks = {"worker": [(-_TEN_YEARS, 0.5), (_TEN_YEARS, 0)], "ps": [(3600, 0.5)]}
        codes, outputs = self.run_job(clocks, os.path.abspath("examples/mnist_ps"), "--images=2000", "--epochs=2")
        self.assertEqual(codes, [0] * 3, outputs)
        self.assertIn("asynchronous test_accuracy=", outputs[0])

    def test_nor_does_a_launcher_whose_job_has_a_coordinator(self):
        for skew in (_TEN_YEARS, -_TEN_YEARS):
            text = programs.run(
                programs.COHORT_RUN,
                "--standalone",
                "--chief",
                "--workers=2",
                "--ps=1",
                "examples/wide_and_deep",
                "--coordinator",
                "--rows=2000",
                "--epochs=2",
                "--batch=64",
                "--columns=4",
                environment=skewed(skew, 0.5),  # each from its own start on
            ).stdout
            self.assertEqual(text.count("lost_updates=0"), 2, text)


if __name__ == "__main__":
    sys.exit(cases.run())
