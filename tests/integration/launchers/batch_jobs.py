"""Batch jobs of Slurm and how they end."""

import os
import pathlib
import tempfile
import time
import unittest

import cases
from programs import Failed, run


def wait_for(condition, what):
    deadline = time.monotonic() + cases.DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"waited in vain for {what}")
        time.sleep(0.02)


class Case(unittest.TestCase):
    """A case with a folder of its own, in which its batch jobs write."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def submit(self, script, *options):
        """Submits a batch script, of which each job writes to a file of its own; returns the job's id."""
        path = self.folder / "job.sbatch"
        path.write_text("#!/bin/bash\n" + script, encoding="utf-8")
        return run("sbatch", "--parsable", f"--output={self.folder}/%x.%J.out", *options, str(path)).stdout.strip()

    def output(self, job):
        """What a job printed; a job of an array is named ARRAY_INDEX."""
        return next(self.folder.glob(f"*.{job}.out")).read_text(encoding="utf-8")

    def state(self, job):
        """The state of each task of a job: "RUNNING", "COMPLETED", "FAILED", "CANCELLED", ..."""
        lines = run("scontrol", "--oneliner", "show", "job", job).stdout.splitlines()
        return [dict(word.split("=", 1) for word in line.split() if "=" in word)["JobState"] for line in lines]

    def wait_for_job(self, job, state="COMPLETED"):
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: all(now in ended for now in self.state(job)), f"the end of job {job}")
        printed = "\n".join(
            path.read_text(encoding="utf-8") for path in self.folder.glob("*.*") if path.suffix in (".log", ".out")
        )
        self.assertEqual(set(self.state(job)), {state}, printed)
