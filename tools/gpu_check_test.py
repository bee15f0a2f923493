#!/usr/bin/env -S python3 -B
"""What `./dev gpu-check` runs on a machine with a GPU, with shell scripts in place of the packed programs."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT / "tests/integration/launchers"))
import cases  # pylint: disable=wrong-import-position

# A program of gtest's, as far as it is asked: TESTS are "Suite. Name Name" by line, and a case of a filter is what it does.
_TEST_PROGRAM = """\
if [[ $1 == --gtest_list_tests ]]; then
  echo 'Running main() from gmock_main.cc'
  printf '{listed}'
  exit
fi
pass() {{ echo '[  PASSED  ] 1 test.'; }}
case ${{1#--gtest_filter=}} in
{cases}
*) pass ;;
esac
"""
_TRAIN = 'echo "cohort $2 world=1 local_batch=7 threads=2 median_ms=2.00 examples_per_s=3500.0"'
_PYTHON = """\
if [[ $1 == -c ]]; then echo 2.11.0; exit; fi
[[ " $* " == *" --batch=7 "* ]] || exit 1
echo "torch world=1 local_batch=7 median_ms=$([[ " $* " == *" --compile "* ]] && echo 1.00 || echo 3.00) examples_per_s=1.0"
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        shutil.copy(_ROOT / "tools/gpu_check.sh", self.folder / "run")
        self.write("programs/torch_train.py", "")
        self.write("programs/nccl_allreduce", "echo buckets $*")
        self.write("programs/train", _TRAIN)
        self.write("python", _PYTHON)

    def write(self, path, body):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def write_tests(self, name, listed, behaviour=""):
        lines = r"\n".join(listed) + r"\n"
        self.write(f"programs/bin/{name}", _TEST_PROGRAM.format(listed=lines, cases=behaviour))

    def run_check(self, *arguments, **more):
        """The lines printed, and the status."""
        with tarfile.open(self.folder / "programs.tar.gz", "w:gz") as packed:
            packed.add(self.programs, ".")
        result = subprocess.run(
            ["bash", self.folder / "run", *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHON": f"env {self.folder}/python", **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=cases.DEADLINE,
            check=False,
        )
        self.assertEqual(result.stderr, "")
        return result.stdout.splitlines(), result.returncode

    def line_of(self, lines, begin):
        """The words of the only line that begins so."""
        found = [line for line in lines if line.startswith(begin)]
        self.assertEqual(len(found), 1, lines)
        return found[0][len(begin) :].split(maxsplit=4)

    def test_adds_up_the_tests_of_a_suite(self):
        self.write_tests("kernels", ["Gather.", "  Rows", "  Columns", "Conv/0.  # TypeParam = float", "  Same"])
        lines, status = self.run_check("--tests")
        self.assertEqual(self.line_of(lines, "kernels Gather ")[:3], ["2", "0", "0"])
        self.assertEqual(self.line_of(lines, "kernels Conv/0 ")[:3], ["1", "0", "0"])
        self.assertEqual(status, 0)

    def test_runs_parts_of_a_long_suite_apart(self):
        self.write_tests("kernels", ["Conv.", *(f"  Case{i}" for i in range(40)), "Gather.", "  Rows"])
        lines, status = self.run_check("--tests")
        passed = {line[:52].rstrip(): line[52:].split()[0] for line in lines if line.startswith("kernels ")}
        self.assertEqual(
            passed, {"kernels Conv": "16", "kernels Conv 2": "16", "kernels Conv 3": "8", "kernels Gather": "1"}
        )
        logs = {path.name for path in (self.folder / "logs").iterdir()}
        self.assertEqual(logs, {f"kernels_{part}.txt" for part in ("Conv", "Conv_2", "Conv_3", "Gather")})
        self.assertEqual(status, 0)

    def test_runs_the_suites_that_are_asked_for(self):
        self.write_tests("kernels", ["Gather.", "  Rows", "GatherGrad.", "  Rows", "Conv.", "  Same"])
        self.write_tests("others", ["Gather.", "  Rows"])
        lines, status = self.run_check("--tests", GPU_CHECK_SUITES=r"^kernels (Gather\.|Conv)")
        ran = {" ".join(line.split()[:2]) for line in lines if line.startswith(("kernels ", "others "))}
        self.assertEqual(ran, {"kernels Gather", "kernels Conv"})
        self.assertEqual(status, 0)
        lines, status = self.run_check("--tests", GPU_CHECK_SUITES="Gathr")
        self.assertIn("no suite is one of GPU_CHECK_SUITES=Gathr", lines)
        self.assertEqual(status, 1)

    def test_goes_on_behind_tests_that_hang_crash_or_fail(self):
        self.write_tests(
            "kernels",
            ["Gpu.", "  Hangs", "  Crashes", "  Fails", "  Passes", "Next.", "  Passes"],
            "*.Hangs) trap '' TERM; sleep 600 & wait; sleep 600 ;;\n*.Crashes) kill -SEGV $$ ;;\n"
            "*.Fails) echo '[ RUN      ] AnError'; echo 'a.cc:7: Failure'; echo 'Expected: 1'; exit 1 ;;",
        )
        lines, status = self.run_check("--tests", GPU_CHECK_SECONDS="3")
        words = self.line_of(lines, "kernels Gpu ")
        self.assertEqual(words[:3], ["1", "0", "3"])
        self.assertRegex(words[4], r"^Hangs: status \d+: not done in 3 s")
        failed = [line.removeprefix("failed: kernels Gpu ").split(":")[0] for line in lines if line.startswith("failed: ")]
        self.assertEqual(failed, ["Hangs", "Crashes", "Fails"])
        self.assertIn("failed: kernels Gpu Fails: status 1: a.cc:7: Failure Expected: 1", [line.rstrip() for line in lines])
        self.assertEqual(self.line_of(lines, "kernels Next ")[:3], ["1", "0", "0"])
        self.assertIn("a.cc:7: Failure", (self.folder / "logs/kernels_Gpu.txt").read_text(encoding="utf-8"))
        self.assertEqual(status, 1)

    def test_says_why_tests_are_skipped(self):
        skipped = "echo 'a.cc:3: Skipped'; echo 'no GPU: none'; echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 1 test, listed below:'"
        self.write_tests("kernels", ["Gpu.", "  Runs"], f"*.Runs) {skipped} ;;")
        lines, status = self.run_check("--tests")
        words = self.line_of(lines, "kernels Gpu ")
        self.assertEqual(words[:3] + words[4:], ["0", "1", "0", "no GPU: none"])
        self.assertEqual(status, 0)

    def test_says_why_a_program_does_not_start(self):
        self.write("programs/bin/broken", "echo 'error while loading shared libraries: libnccl.so.2' >&2; exit 127")
        lines, status = self.run_check("--tests")
        words = self.line_of(lines, "broken ")
        self.assertEqual(words[2], "1")
        self.assertIn("status 127: error while loading shared libraries: libnccl.so.2", words[4])
        self.assertEqual(status, 1)

    def test_memcheck_does_not_count_calls_that_libraries_let_fail(self):
        self.write_tests("kernels", ["Conv.", "  Same"])
        self.write("cuda/compute-sanitizer", 'echo "$*" >>"$0.calls"\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"')
        lines, status = self.run_check("--sanitizer", PATH=f"{self.folder}/cuda:{os.environ['PATH']}")
        for tool in ("memcheck", "racecheck", "synccheck"):
            self.assertEqual(self.line_of(lines, f"kernels Conv, {tool} ")[:3], ["1", "0", "0"])
        program = "bin/kernels --gtest_filter=Conv.Same"
        self.assertEqual(
            (self.folder / "cuda/compute-sanitizer.calls").read_text(encoding="utf-8").splitlines(),
            [
                f"--tool=memcheck --error-exitcode=1 --report-api-errors=no {program}",
                f"--tool=racecheck --error-exitcode=1 {program}",
                f"--tool=synccheck --error-exitcode=1 {program}",
            ],
        )
        self.assertEqual(status, 0)

    def test_starts_nothing_when_the_time_is_over(self):
        self.write_tests("kernels", ["Gpu.", "  Hangs", "  Waits"], "*.Hangs) exec sleep 600 ;;")
        lines, status = self.run_check(GPU_CHECK_TOTAL_SECONDS="1", GPU_CHECK_MODELS="mlp", GPU_CHECK_PRECISIONS="tf32")
        self.assertEqual(self.line_of(lines, "kernels Gpu ")[:3], ["0", "0", "2"])
        self.assertIn("no time left", " ".join(self.line_of(lines, "train mlp gpu:0 ")))
        self.assertTrue(any(re.fullmatch(r"failed: \d+ had no time left", line) for line in lines), lines)
        self.assertEqual(status, 1)

    def test_measures_beside_pytorch_on_the_same_batch(self):
        lines, status = self.run_check("--benchmarks", GPU_CHECK_MODELS="mlp", GPU_CHECK_PRECISIONS="tf32")
        self.assertIn("buckets", lines)
        self.assertIn("buckets --shared=2", lines)
        self.assertIn("buckets --processes=2 --buckets=1 --repetitions=3", lines)
        self.assertEqual(self.line_of(lines, "train mlp gpu:0 "), ["tf32", "2.00", "3500.0"])
        self.assertEqual(self.line_of(lines, "  PyTorch, eager "), ["tf32", "3.00", "1.0", "cohort/torch=1.50"])
        self.assertEqual(self.line_of(lines, "  PyTorch, compiled "), ["tf32", "1.00", "1.0", "cohort/torch=0.50"])
        self.assertEqual(status, 0)

    def test_runs_a_command_with_the_libraries_of_the_tests(self):
        self.write("programs/shows", 'echo "$LD_LIBRARY_PATH"; pwd; exit 3')
        self.write("python", f"echo {self.folder}/nvidia/cudnn/lib")
        lines, status = self.run_check("--", "./shows")
        self.assertEqual(lines[0].split(":")[0], f"{os.path.realpath(self.folder)}/lib")
        self.assertIn(f"{self.folder}/nvidia/cudnn/lib", lines[0].split(":"))
        self.assertEqual(lines[1:], [os.path.realpath(self.folder)])
        self.assertEqual(status, 3)

    def test_shows_what_a_benchmark_warns_of(self):
        self.write("programs/train", _TRAIN + "; echo 'warning: steps on gpu:0 cannot be recorded' >&2")
        lines, _ = self.run_check("--benchmarks", GPU_CHECK_MODELS="mlp", GPU_CHECK_PRECISIONS="tf32")
        self.assertIn("warning: steps on gpu:0 cannot be recorded", " ".join(self.line_of(lines, "train mlp gpu:0 ")))


if __name__ == "__main__":
    sys.exit(cases.run())
