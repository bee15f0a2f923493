#!/usr/bin/env -S python3 -B
"""How .ci/run closes, with a ./dev that does as told: always on the line that counts, also when steps break."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT / "tests/integration/launchers"))
import cases  # pylint: disable=wrong-import-position


class Ci(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / ".ci").mkdir()
        for file in (".ci/run", ".ci/allowed_skips"):
            shutil.copy(_ROOT / file, self.folder / file)

    def run_ci(self, steps, with_cuda=False):
        """The lines and the exit status, where `steps` are the cases of what ./dev does by its arguments."""
        toolkit = self.folder / "cuda"
        if with_cuda:
            self.write_program("cuda/bin/nvcc", "")
        self.write_program("dev", f"case $* in\n{steps}\nesac")
        result = subprocess.run(
            [self.folder / ".ci/run"],
            env={**os.environ, "CUDA_PATH": str(toolkit)},
            capture_output=True,
            text=True,
            timeout=cases.DEADLINE,
            check=False,
        )
        return result.stdout.splitlines(), result.returncode

    def write_program(self, path, body):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def test_adds_up_the_tests_of_both_builds(self):
        steps = "test) echo 'a test'; echo '3 passed, 0 failed' ;;\n'test --config'*) echo '2 passed, 0 failed' ;;"
        lines, status = self.run_ci(steps, with_cuda=True)
        self.assertEqual(lines, ["a test", "5 passed, 0 failed"])
        self.assertEqual(status, 0)

    def test_counts_failed_tests_and_other_failed_steps(self):
        lines, status = self.run_ci("lint) exit 1 ;;\ntest) echo '3 passed, 2 failed'; exit 3 ;;")
        self.assertEqual(lines[-3:], ["failed step: ./dev lint", "failed step: ./dev test", "3 passed, 3 failed"])
        self.assertEqual(status, 1)

    def test_says_what_was_skipped_by_reason(self):
        no_gpu = "echo 'skipped Gpu.Adds: no GPU: no driver'"
        no_right = "echo 'skipped SmallDisks.Fill: no mounts of its own: Operation not permitted'"
        lines, status = self.run_ci(
            f"test) {no_gpu}; {no_right}; echo '2 skipped'; echo '3 passed, 0 failed' ;;\n"
            f"'test --config'*) {no_gpu}; echo '1 skipped'; echo '1 passed, 0 failed' ;;",
            with_cuda=True,
        )
        summary = ["2 skipped: no GPU: no driver", "1 skipped: no mounts of its own: Operation not permitted"]
        self.assertEqual(lines[-3:], [*summary, "4 passed, 0 failed"])
        self.assertEqual(status, 0)

    def test_fails_for_what_is_skipped_for_a_reason_that_is_not_allowed(self):
        for test in ("SmallDisks.Fill: no mounts of its own: Invalid argument", "__main__.all: mpirun is not installed"):
            lines, status = self.run_ci(f"test) echo 'skipped {test}'; echo '1 skipped'; echo '3 passed, 0 failed' ;;")
            said = [f"not to be skipped: {test}", "failed step: skips that .ci/allowed_skips does not name"]
            self.assertEqual(lines[-3:], [*said, "3 passed, 1 failed"])
            self.assertEqual(status, 1)

    def test_closes_on_the_count_when_tests_end_before_they_are_counted(self):
        for steps in ("test) exit 1 ;;", "test) echo 'cannot build'; exit 1 ;;"):
            lines, status = self.run_ci(steps)
            self.assertEqual(lines[-2:], ["failed step: ./dev test", "0 passed, 1 failed"])
            self.assertEqual(status, 1)
        self.assertIn("cannot build", lines)
        counted_later = "test) exit 1 ;;\n'test --config'*) echo '2 passed, 0 failed' ;;"
        lines, status = self.run_ci(counted_later, with_cuda=True)
        self.assertEqual(lines[-1], "2 passed, 1 failed")
        self.assertEqual(status, 1)


if __name__ == "__main__":
    sys.exit(cases.run())
