#!/usr/bin/env python3
"""Counts the test cases of one Bazel run: `count_tests.py BUILD_EVENT_JSON_FILE BAZEL_EXIT_STATUS`.

Prints a line `skipped TEST: REASON` for each that was, and `N skipped`, if any were, and closes on `N passed, N failed`.
"""

import json
import os
import re
import sys
import urllib.parse
import xml.etree.ElementTree

# What a test may have written, and XML has no place for: one such character would make the whole file unreadable.
_NOT_OF_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Where a test of GoogleTest was skipped, before the reason.
_PLACE = re.compile(r"\A\S+:\d+\n")

TESTS_FAILED, NO_TESTS = 3, 4  # exit statuses of `bazel test` after a build that succeeded


def last_attempts(events):
    """The result of each test target, shard and run; a retried test counts once."""
    results = {}
    for event in events:
        test = event["id"].get("testResult")
        if test and "testResult" in event:
            results[test["label"], test.get("shard"), test.get("run")] = event["testResult"]
    return results.values()


def read_xml(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return xml.etree.ElementTree.fromstring(_NOT_OF_XML.sub("?", file.read()))


def cases_of(result):
    """The <testcase> elements that one test program has written."""
    uris = [output["uri"] for output in result.get("testActionOutput", []) if output["name"] == "test.xml"]
    for path in (urllib.parse.unquote(urllib.parse.urlparse(uri).path) for uri in uris):
        if os.path.exists(path):
            yield from read_xml(path).iter("testcase")


def reason_of(skipped):
    """Of a <skipped> element, in one line."""
    return " ".join(_PLACE.sub("", skipped.get("message") or "no reason given").split())


def count(events, status):
    passed = failed = 0
    skipped = []  # a line for each, with the reason
    for result in last_attempts(events):
        failed_here = 0
        for case in cases_of(result):
            if case.find("failure") is not None or case.find("error") is not None:
                failed_here += 1
            elif case.find("skipped") is not None:
                name = f"{case.get('classname')}.{case.get('name')}"
                skipped.append(f"skipped {name}: {reason_of(case.find('skipped'))}")
            elif case.get("status") != "notrun":
                passed += 1
        # A program can also fail as a whole: a crash, a time-out, a sanitizer's verdict.
        failed += failed_here or result["status"] not in ("PASSED", "FLAKY")
    return passed, failed + (status not in (0, TESTS_FAILED, NO_TESTS)), skipped


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        passed, failed, skipped = count(map(json.loads, file), int(sys.argv[2]))
    if skipped:
        print(*skipped, f"{len(skipped)} skipped", sep="\n")
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    main()
