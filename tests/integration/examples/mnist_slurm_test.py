#!/usr/bin/env -S python3 -B
"""An example under a real Slurm, on four hosts that share no memory: trained, preempted, and gone on with."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
# pylint: disable=wrong-import-position
import cases
import emulated_slurm
from batch_jobs import Case, wait_for
from digits import write_digits
from programs import run

_PROGRAM = os.path.join(os.getcwd(), "examples/mnist_cnn")
_RESUMABLE = 42
_ENVIRONMENT = {"COHORT_ALLOW_PLAINTEXT": "1", "OMP_NUM_THREADS": "1"}


class MnistCnn(Case):
    def setUp(self):
        super().setUp()
        write_digits(self.folder, "train", 400)
        write_digits(self.folder, "t10k", 100)
        self.backup = self.folder / "backup"
        self.command = ["srun", "-N4", "-n4", _PROGRAM, f"--data_dir={self.folder}", "--epochs=6", "--batch=20"]

    def results(self, text):
        """The loss of the last epoch and the accuracy of the test, as the chief alone prints them."""
        (accuracy,) = re.findall(r"^test_accuracy=([0-9.]+)$", text, re.MULTILINE)
        return re.findall(r" loss[=:] ?([0-9.]+)", text)[-1], accuracy

    def test_four_hosts_train_together_and_go_on_after_a_preemption(self):
        expected = self.results(run(*self.command, environment=_ENVIRONMENT).stdout)
        self.assertGreater(float(expected[1]), 0.9)

        self.command.append(f"--backup_dir={self.backup}")
        exports = " ".join(f"{name}={value}" for name, value in _ENVIRONMENT.items())
        job = self.submit(
            f"#SBATCH --nodes=4 --ntasks-per-node=1\nexport {exports}\n{' '.join(self.command)}\necho status=$?\n"
        )
        wait_for(lambda: any(self.backup.glob("*.safetensors")), "a backup")
        run("scancel", "--signal=TERM", job)
        self.wait_for_job(job)
        self.assertIn(f"status={_RESUMABLE}\n", self.output(job))
        self.assertIn("CANCELLED: fit: interrupted", self.output(job))

        self.assertEqual(self.results(run(*self.command, environment=_ENVIRONMENT).stdout), expected)
        self.assertFalse(any(self.backup.iterdir()), "a backup is removed in the end")


if __name__ == "__main__":
    try:
        sys.exit(emulated_slurm.with_slurm(cases.run))
    except emulated_slurm.Unavailable as unavailable:
        sys.exit(cases.skip_all(str(unavailable)))
