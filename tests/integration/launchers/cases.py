"""Runs the unittest cases of a program and tells Bazel about each of them, skipped ones with their reason.

And how long they wait: in seconds, as parts of the time that Bazel gives the whole program (.bazelrc), which is more
under sanitizers.
"""

import os
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree

_WHOLE = int(os.environ.get("TEST_TIMEOUT", "900"))
DEADLINE = _WHOLE // 4  # what has not come about by then never will
SOON = _WHOLE // 30  # for what takes moments, on a busy machine


class _Result(unittest.TextTestResult):
    """Keeps a <testcase> of each case."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.suite = ElementTree.Element("testsuite", name=os.path.basename(sys.argv[0]))
        self._begin = 0.0

    def startTest(self, test):
        super().startTest(test)
        self._begin = time.monotonic()

    def addSuccess(self, test):
        super().addSuccess(test)
        self._add(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._add(test, "failure", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self._add(test, "error", self.errors[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._add(test, "skipped", reason)

    def _add(self, test, outcome=None, message=""):
        folder, _, name = test.id().rpartition(".")
        seconds = time.monotonic() - self._begin if self._begin else 0
        add_case(self.suite, folder, name, seconds, outcome, message)


def add_case(suite, folder, name, seconds=0.0, outcome=None, message=""):
    case = ElementTree.SubElement(suite, "testcase", classname=folder, name=name, time=f"{seconds:.3f}")
    if outcome:
        ElementTree.SubElement(case, outcome, message=message)


def _write(suite):
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def run():
    """Runs the cases of the main program, those named on the command line or all; returns an exit status."""
    runner = unittest.TextTestRunner(resultclass=_Result, verbosity=2)
    result = unittest.main("__main__", exit=False, testRunner=runner).result
    _write(result.suite)
    return 0 if result.wasSuccessful() and result.testsRun else 1


def skip_all(reason):
    """In place of run(), where none of the cases can run; returns an exit status."""
    print(f"skipped: {reason}", file=sys.stderr)
    suite = ElementTree.Element("testsuite", name=os.path.basename(sys.argv[0]))
    add_case(suite, "__main__", "all", 0.0, "skipped", reason)
    _write(suite)
    return 0
