#!/usr/bin/env -S python3 -B
"""Cohort as it is installed: used by a program outside of the source tree, from another folder than it was put into."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

_ROOT = pathlib.Path.cwd()  # Bazel starts tests where the paths of BUILD files begin
_HERE = _ROOT / "tests/integration/install"
sys.path.insert(0, str(_ROOT / "tests/integration/launchers"))
import cases  # pylint: disable=wrong-import-position

_WRONG_INPUT = 2  # as README.md has it
_STRICT = ("-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Werror")
_INCLUDE = re.compile(r'(?m)^#include ["<]([^">]+)[">]')
_FOREIGN = re.compile(r" _Z(?:T.)?NK?\d+(?:absl|dnnl|Eigen|google|grpc|nlohmann)\w*")


def run(*command, status=0, **environment):
    """What a command writes to both streams; it must end with `status`."""
    result = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=cases.DEADLINE,
        check=False,
    )
    if result.returncode != status:
        raise AssertionError(f"{command}: ended with {result.returncode}, expected {status}\n{result.stdout}")
    return result.stdout


def install(prefix, status=0):
    return run(str(_ROOT / "tools/install/install.py"), str(prefix), status=status)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Installation(Case):
    def test_replaces_an_older_one_and_nothing_else(self):
        install(self.folder)
        header, stale = (self.folder / "include/cohort" / name for name in ("cohort.h", "stale.h"))
        foreign = self.folder / "bin/foreign"
        before = header.read_bytes()
        header.write_text("older", encoding="utf-8")
        stale.touch()
        foreign.touch()
        install(self.folder)
        self.assertEqual(header.read_bytes(), before)
        self.assertFalse(stale.exists())
        self.assertTrue(foreign.exists())
        self.assertEqual(list(self.folder.rglob(".*")), [], "left behind")

    def test_is_for_all_users_whatever_those_may_see_of_other_files(self):
        prefix = self.folder / "new/prefix"
        script = str(_ROOT / "tools/install/install.py")
        run("sh", "-c", 'umask 077; exec "$0" "$1"', script, str(prefix))
        for path in [prefix.parent, prefix, *prefix.rglob("*")]:
            expected = 0o755 if path.is_dir() or path.parent.name == "bin" else 0o644
            self.assertEqual(oct(path.stat().st_mode & 0o777), oct(expected), path)

    def test_says_what_cannot_be_written(self):
        file = self.folder / "file"
        file.touch()
        self.assertRegex(install(file, status=1), f"^cannot install into {file}: .*Not a directory")


class Use(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        first = pathlib.Path(folder.name, "first")
        install(first)
        cls.prefix = first.rename(pathlib.Path(folder.name, "moved"))
        cls.headers = cls.prefix / "include/cohort"
        cls.version = run("pkg-config", "--modversion", str(cls.prefix / "lib/pkgconfig/cohort.pc")).strip()

    def check_syntax(self, source, *flags, status=0):
        return run("g++", "-fsyntax-only", f"-I{self.headers}", str(source), *flags, status=status)

    def compile(self, headers, *flags, status=0):
        source = self.folder / "source.cc"
        source.write_text("".join(f'#include "{header}"\n' for header in headers), encoding="utf-8")
        return self.check_syntax(source, *flags, status=status)

    def check_program(self, program):
        trained = run(program)
        losses = [float(loss) for loss in re.findall(r"(?m)^loss=([0-9.]+)$", trained)]
        self.assertEqual(len(losses), 2, trained)
        self.assertLess(losses[1], losses[0])
        self.assertIn("replicas=2\n", trained)
        self.assertIn(f"version={self.version} library={self.version}\n", trained)
        refused = run(program, "--epochs=0", status=_WRONG_INPUT)
        self.assertIn("error: INVALID_ARGUMENT: --epochs=0 is not allowed", refused)

    def build(self, name):
        """The path of the program of that source, built by pkg-config's flags."""
        pkg_config = {"PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "cohort", **pkg_config)
        program = str(self.folder / name)
        run("g++", "-std=c++20", str(_HERE / f"{name}.cc"), "-o", program, *shlex.split(flags))
        return program

    def test_an_op_of_ones_own_trains_as_the_ops_that_it_stands_for(self):
        text = run(self.build("own_op"))
        own, composed = re.search(r"(?m)^own=([0-9.]+) composed=([0-9.]+)$", text).groups()
        self.assertAlmostEqual(float(own), float(composed), delta=0.001)
        self.assertRegex(text, "error: .*MySoftsign.*takes float32 and float64, not int64")

    def test_by_pkg_config(self):
        program = self.build("train")
        self.check_program(program)
        launched = run(str(self.prefix / "bin/cohort-run"), "--workers=2", program)
        self.assertIn("[worker:1] replicas=2\n", launched)

    def test_by_cmake(self):
        for name in ("CMakeLists.txt", "train.cc"):
            shutil.copy(_HERE / name, self.folder)
        build = str(self.folder / "build")
        configure = ("cmake", "-S", str(self.folder), "-B", build, "-G", "Unix Makefiles")
        run(*configure, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.check_program(f"{build}/train")
        lists = self.folder / "CMakeLists.txt"
        text = lists.read_text(encoding="utf-8")
        for wanted, status, said in (
            ("Cohort 0.0 REQUIRED", 1, "CohortConfig.cmake, version: 0.1"),
            ("Cohort 0.1 REQUIRED COMPONENTS gpu", 1, "Cohort has no components, and so no gpu"),
            ("Cohort 0.1 REQUIRED OPTIONAL_COMPONENTS gpu", 0, "Build files have been written"),
        ):
            lists.write_text(text.replace("Cohort 0.1 REQUIRED", wanted), encoding="utf-8")
            self.assertIn(said, " ".join(run(*configure, status=status).split()))

    def test_headers_are_those_that_documents_show_and_need_no_other_library(self):
        for document in [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]:
            for header in _INCLUDE.findall(document.read_text(encoding="utf-8")):
                standard = re.fullmatch(r"[a-z_]+", header)
                self.assertTrue(standard or (self.headers / header).exists(), f"{document.name} shows {header}")
        for header in self.headers.rglob("*.h"):
            for included in _INCLUDE.findall(header.read_text(encoding="utf-8")):
                own = (header.parent / included).exists()
                self.assertTrue(own or re.fullmatch(r"[a-z_]+|sys/[a-z]+\.h", included), f"{header}: {included}")

    def test_headers_compile_without_warnings(self):
        headers = sorted(str(path.relative_to(self.headers)) for path in self.headers.rglob("*.h"))
        self.compile(headers, *_STRICT)

    def test_options_that_are_left_out_cause_no_warnings(self):
        self.check_syntax(_HERE / "options.cc", *_STRICT)

    def test_an_older_standard_is_told_first(self):
        said = self.compile(["cohort.h"], "-std=c++17", "-fmax-errors=1", status=1)
        self.assertRegex(said, "error: .*-std=c[+]{2}20")

    def test_library_is_found_by_its_version_and_shows_symbols_of_its_own(self):
        (library,) = (self.prefix / "lib").glob("libcohort.so.*")
        self.assertEqual((self.prefix / "lib/libcohort.so").resolve(), library.resolve())
        dynamic = run("readelf", "--dynamic", "--wide", str(library))
        self.assertIn(f"soname: [{library.name}]", dynamic)
        self.assertNotRegex(dynamic, "RPATH|RUNPATH")
        self.assertIn("NODELETE", dynamic)
        self.assertEqual(library.name, f"libcohort.so.{self.version}")
        symbols = run("nm", "--dynamic", "--defined-only", str(library))
        self.assertIn("_ZN6cohort8run_main", symbols)
        self.assertEqual(_FOREIGN.findall(symbols), [])


if __name__ == "__main__":
    sys.exit(cases.run())
