#!/usr/bin/env -S python3 -B
"""What ./dev says, runs and ends with, in a tree of its own where apt-get, dpkg-query, bazel and so on only note their call."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT / "tests/integration/launchers"))
import cases  # pylint: disable=wrong-import-position

_NOBODY = 65534

_DEPENDENCIES = """\
# Dependencies

## Build

- `compiler`: makes programs
- `library`: the products

## Test

- `framework`: runs tests

## Format and lint

- `formatter`: keeps one style

## Elsewhere

- `peer`: is never installed
"""

_MISSING = "Missing Debian packages:\n"
_COMPILER = "compiler: makes programs\n"
_LIBRARY = "library: the products\n"
_FRAMEWORK = "framework: runs tests\n"
_FORMATTER = "formatter: keeps one style\n"


class Dev(unittest.TestCase):
    def setUp(self):
        # Not in Bazel's folders, into which other users cannot look.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o777)
        self.tree = self.folder / "tree"
        self.write("tree/dev", (_ROOT / "dev").read_text(encoding="utf-8"), 0o755)
        self.write("tree/docs/dependencies.md", _DEPENDENCIES)
        for name in ("second", "first"):
            self.write(f"tree/examples/{name}.cc", "int main() {}\n")
        self.write("calls", "", 0o666)
        note = f'echo "${{0##*/}} $*" >>{self.folder}/calls'
        for name in ("apt-get", "sudo", "clang-tidy"):
            self.write_program(name, f"{note}\nexit ${{{name.replace('-', '_').upper()}_STATUS:-0}}")
        self.write_program("bazel", note)
        # Debian's, as far as it is asked; it fails where a package is unknown to it, and tells of the others.
        self.write_program(
            "dpkg-query",
            'status=0\nfor package in "${@:3}"; do\n'
            '  if [[ " $MISSING " == *" $package "* ]]; then status=1; else echo "installed $package "; fi\n'
            "done\nexit $status",
        )

    def write(self, path, text, mode=0o644):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(self.folder).parents[:-1]:
            (self.folder / parent).chmod(0o755)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def write_program(self, name, body):
        self.write(f"bin/{name}", f"#!/usr/bin/env bash\n{body}\n", 0o755)

    def environment(self, missing, more):
        return {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "MISSING": missing,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **more,
        }

    def dev(self, *arguments, missing="", user=None, cwd=None, **more):
        """What ./dev ends with, has written to stdout and to stderr, without a terminal."""
        try:
            result = subprocess.run(
                [self.tree / "dev", *arguments],
                env=self.environment(missing, more),
                cwd=cwd or self.folder,
                user=user,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=cases.DEADLINE,
                check=False,
            )
        except PermissionError as error:
            self.skipTest(f"there is no other user to be here: {error}")
        return result.returncode, result.stdout, result.stderr

    def dev_on_terminal(self, answer, *arguments, missing="", **more):
        """What a user who is not root sees of ./dev, which is answered; and what it ends with."""
        ends = list(pty.openpty())
        master, slave = ends
        os.write(master, answer.encode())
        seen = b""
        deadline = time.monotonic() + cases.DEADLINE
        try:
            with subprocess.Popen(
                [self.tree / "dev", *arguments],
                env=self.environment(missing, more),
                cwd=self.folder,
                user=self.ordinary_user(),
                stdin=slave,
                stdout=slave,
                stderr=slave,
            ) as process:
                os.close(ends.pop())
                try:
                    while select.select([master], [], [], max(0, deadline - time.monotonic()))[0]:
                        seen += os.read(master, 4096)
                    process.kill()
                    self.fail(f"./dev does not end; it has said {seen}")
                except OSError:  # the other side is closed
                    pass
                status = process.wait(timeout=cases.DEADLINE)
        except PermissionError as error:
            self.skipTest(f"there is no other user to be here: {error}")
        finally:
            for end in ends:
                os.close(end)
        return status, seen.decode().replace("\r\n", "\n")

    def calls(self):
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    @staticmethod
    def ordinary_user():
        return _NOBODY if os.geteuid() == 0 else None

    def require_root(self):
        if os.geteuid() != 0:
            self.skipTest("only root installs without being asked")


class Setup(Dev):
    def test_is_silent_where_nothing_is_missing(self):
        self.assertEqual(self.dev("setup"), (0, "", ""))
        self.assertEqual(self.calls(), [])

    def test_as_root_says_what_is_missing_and_why_and_installs_it(self):
        self.require_root()
        status, out, said = self.dev("setup", missing="library formatter peer")
        command = "apt-get update && apt-get install --yes --no-install-recommends library formatter"
        self.assertEqual((status, out), (0, ""))
        self.assertEqual(said, f"{_MISSING}{_LIBRARY}{_FORMATTER}Running: {command}\n")
        self.assertEqual(self.calls(), command.split(" && "))

    def test_as_root_ends_as_the_installation_that_fails(self):
        self.require_root()
        status, _, said = self.dev("build", missing="compiler", APT_GET_STATUS="100")
        self.assertEqual(status, 100)
        self.assertIn(_MISSING + _COMPILER, said)
        self.assertEqual(self.calls(), ["apt-get update"])

    def test_as_another_user_without_a_terminal_tells_how_and_installs_nothing(self):
        status, out, said = self.dev("setup", missing="compiler", user=self.ordinary_user())
        self.assertEqual((status, out), (3, ""))
        self.assertEqual(
            said,
            f"{_MISSING}{_COMPILER}To install them: sudo sh -c 'apt-get update && apt-get install --yes "
            "--no-install-recommends compiler'\n",
        )
        self.assertEqual(self.calls(), [])

    def test_as_another_user_without_sudo_tells_of_su(self):
        few = self.folder / "few"
        few.mkdir()
        few.chmod(0o755)
        for name in ("bash", "env", "dirname", "readlink", "sed", "cut"):
            (few / name).symlink_to(shutil.which(name))
        (self.folder / "bin/sudo").unlink()
        path = f"{self.folder}/bin:{few}"
        status, _, said = self.dev("setup", missing="compiler", user=self.ordinary_user(), PATH=path)
        self.assertEqual(status, 3)
        self.assertIn("To install them: su -c 'apt-get update && apt-get install --yes ", said)

    def test_as_another_user_on_a_terminal_asks(self):
        end_of_input = "\x04"
        for answer in ("n\n", "\n", "yes, please\n", end_of_input):
            status, seen = self.dev_on_terminal(answer, "setup", missing="compiler")
            self.assertEqual(status, 3, seen)
            self.assertIn(_COMPILER, seen)
            self.assertIn("Run this now? [y/N]", seen)
            self.assertEqual(self.calls(), [])
        status, seen = self.dev_on_terminal("y\n", "setup", missing="compiler")
        self.assertEqual(status, 0, seen)
        self.assertEqual(
            self.calls(),
            ["sudo sh -c apt-get update && apt-get install --yes --no-install-recommends compiler"],
        )

    def test_comes_before_the_other_commands(self):
        user = self.ordinary_user()
        programs, everything = _MISSING + _LIBRARY, _MISSING + _LIBRARY + _FRAMEWORK
        for wanted, commands in (programs, (["run", "first"], ["install"])), (everything, (["build"], ["test"])):
            for command in commands:
                status, _, said = self.dev(*command, missing="library framework formatter", user=user)
                self.assertEqual(status, 3, command)
                self.assertIn(wanted + "To install them", said, command)
        self.assertEqual(self.dev("format", missing="formatter", user=user)[0], 3)
        self.assertEqual(self.calls(), [])


class Commands(Dev):
    def test_are_listed(self):
        known = re.findall(r"(?m)^  ([a-z-]+)\) ", (_ROOT / "dev").read_text(encoding="utf-8"))
        expected = {"setup", "build", "run", "test", "bench", "install", "format", "lint", "clean"}
        self.assertLessEqual(expected, set(known))
        for arguments in ([], ["help"]):
            status, out, said = self.dev(*arguments)
            self.assertEqual((status, said), (0, ""))
            for command in known:
                self.assertIn(f"\n  {command} ", out)
        status, out, said = self.dev("tset")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(said.endswith("unknown command: tset\n"), said)
        self.assertIn("usage: ./dev COMMAND", said)

    def test_build_takes_flags_and_targets(self):
        self.assertEqual(self.dev("build", "//core/base", "--config=asan")[0], 0)
        self.assertEqual(self.dev("build")[0], 0)
        one, everything = self.calls()
        self.assertTrue(one.startswith(f"bazel build --disk_cache={self.folder}/.cache/cohort/bazel "), one)
        self.assertTrue(one.endswith(" --config=asan -- //core/base"), one)
        self.assertTrue(everything.endswith(" -- //..."), everything)

    def test_run_names_the_examples_that_there_are(self):
        choose = "choose one of:\n  first\n  second\n"
        self.write("tree/examples/part_of_first.cc", "void help() {}\n")
        for name in ("third", "part_of_first"):
            self.assertEqual(self.dev("run", name), (2, "", f"no such program: examples/{name}.cc; {choose}"))
        self.assertEqual(self.dev("run"), (2, "", choose))
        self.assertEqual(self.dev("run", "third", missing="compiler")[0], 2, "before anything is installed")
        self.assertEqual(self.calls(), [])

    def test_run_becomes_the_program_in_the_callers_folder(self):
        self.write("tree/bazel-bin/examples/first", '#!/usr/bin/env bash\necho "$PWD $*"\nexit 7\n', 0o755)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        status, out, _ = self.dev("run", "first", "--epochs=2", "x y", cwd=elsewhere)
        self.assertEqual((status, out), (7, f"{elsewhere.resolve()} --epochs=2 x y\n"))
        self.assertTrue(self.calls()[0].endswith(" //examples:first"))


class Install(Dev):
    def setUp(self):
        super().setUp()
        runfiles = "tree/bazel-bin/tools/install/install.runfiles/cohort"
        self.write(f"{runfiles}/tools/install/install.py", '#!/usr/bin/env bash\necho "$@"\n', 0o755)

    def test_builds_with_the_flags_and_installs_where_it_is_told(self):
        folder = self.folder.resolve()
        for argument, prefix in (("--prefix=a/../b", f"{folder}/b"), ("--prefix=~/b", f"{self.folder}/b")):
            status, out, said = self.dev("install", "--config=cuda", argument)
            self.assertEqual((status, out), (0, f"{prefix}\n"), said)
            self.assertTrue(self.calls()[-1].endswith(" --config=cuda //tools/install"), self.calls())
        self.assertEqual(self.dev("install")[1], f"{self.folder}/.local/cohort\n", "no folder of the system")

    def test_refuses_what_it_does_not_understand_and_where_it_may_not_write_before_it_builds(self):
        file = self.folder / "calls"
        for arguments, part in (
            (["--prefix"], "--prefix=DIR"),
            (["--prefix="], "--prefix=DIR"),
            (["/opt/cohort"], "/opt/cohort"),
            ([f"--prefix={file}/a/b"], f"cannot install into {file}/a/b: {file} is no folder"),
            (["--prefix=/sys/cohort"], "cannot install into /sys/cohort: /sys is no folder"),
        ):
            status, out, said = self.dev("install", *arguments, user=self.ordinary_user())
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(part, said)
        self.assertEqual(self.calls(), [])

    def test_ends_as_the_build_that_fails(self):
        self.write_program("bazel", "exit 1")
        self.assertEqual(self.dev("install", f"--prefix={self.folder}/b")[:2], (1, ""))


class Test(Dev):
    def setUp(self):
        super().setUp()
        counting = (_ROOT / "tools/count_tests.py").read_text(encoding="utf-8")
        self.write("tree/tools/count_tests.py", counting, 0o755)

    def test_counts_cases_whatever_they_have_written(self):
        (self.folder / "test.xml").write_bytes(
            b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites><testsuite><testcase name="good" />'
            b'<testcase name="bad"><failure message="\x1b[31m&lt;\xff\xc2\xa7"><![CDATA[\0\x07]]></failure></testcase>'
            b'<testcase classname="Odd" name="one"><skipped message="odd.cc:7&#x0A;no \x08bell,&#x0A;no book" /></testcase></testsuite></testsuites>'
        )
        output = {"name": "test.xml", "uri": f"file://{self.folder}/test.xml"}
        result = {"status": "FAILED", "testActionOutput": [output]}
        self.write("events", json.dumps({"id": {"testResult": {"label": "//a:b"}}, "testResult": result}))
        self.write_program(
            "bazel",
            "for argument; do\n"
            f'  case $argument in --build_event_json_file=*) cp {self.folder}/events "${{argument#*=}}"; exit 3 ;; esac\n'
            "done",
        )
        status, out, said = self.dev("test")
        self.assertEqual((status, out), (3, "skipped Odd.one: no ?bell, no book\n1 skipped\n1 passed, 1 failed\n"), said)


class Lint(Dev):
    def setUp(self):
        super().setUp()
        self.git("init", "--quiet", "--initial-branch=work")
        self.commits = [self.commit(name) for name in ("a", "b", "c")]

    def git(self, *arguments):
        identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
        result = subprocess.run(
            ["git", *identity, *arguments],
            env=self.environment("", {}),
            cwd=self.tree,
            capture_output=True,
            text=True,
            timeout=cases.DEADLINE,
            check=True,
        )
        return result.stdout.strip()

    def commit(self, name):
        self.write(f"tree/core/{name}.cc", "")
        self.git("add", f"core/{name}.cc")
        self.git("commit", "--quiet", "--message", name)
        return self.git("rev-parse", "HEAD")

    def linted(self, *arguments, **environment):
        """The files that clang-tidy was given."""
        self.write("calls", "", 0o666)
        status, out, said = self.dev("lint", *arguments, **environment)
        self.assertEqual(status, 0, out + said)
        return sorted(call.split()[-1] for call in self.calls() if call.startswith("clang-tidy"))

    def test_takes_what_the_last_commit_changed_and_later_edits(self):
        self.git("add", "examples", "dev", "docs")
        self.git("commit", "--quiet", "--amend", "--no-edit")
        self.assertEqual(self.linted(), ["core/c.cc", "examples/first.cc", "examples/second.cc"])
        self.write("tree/core/new.cc", "")
        self.write("tree/core/a.cc", "// edited\n")
        self.assertEqual(
            self.linted(), ["core/a.cc", "core/c.cc", "core/new.cc", "examples/first.cc", "examples/second.cc"]
        )
        self.assertEqual(self.linted("core/b.cc"), ["core/b.cc"])

    def test_takes_what_has_changed_since_a_base(self):
        examples = ["examples/first.cc", "examples/second.cc"]  # of which git knows nothing
        self.assertEqual(self.linted(), ["core/c.cc", *examples])
        self.assertEqual(self.linted(CI_BASE=self.commits[1]), ["core/c.cc", *examples])
        self.assertEqual(self.linted(CI_BASE=self.commits[0]), ["core/b.cc", "core/c.cc", *examples])

    def test_refuses_a_base_that_is_no_commit(self):
        status, _, said = self.dev("lint", CI_BASE="nowhere")
        self.assertEqual((status, said), (2, "lint: there is no commit CI_BASE=nowhere here\n"))
        self.assertEqual(self.calls(), [])

    def test_fails_where_clang_tidy_does(self):
        self.assertNotEqual(self.dev("lint", CLANG_TIDY_STATUS="1")[0], 0)


if __name__ == "__main__":
    sys.exit(cases.run())
