#!/usr/bin/env -S python3 -B
"""Checks that each folder with files of the project, in it or below, has a README.md, headed by its path, that says something.

Bazel runs it as //tools:folder_readme_test, straight in the source tree.
"""

import os
import re
import tempfile

import source_tree

# Files that people write; what tools leave in the tree makes no folder one of the project. Below tests/ they leave nothing.
_WRITTEN = re.compile(r".*\.(h|cc|py|bzl|proto|md|sh|sbatch|yaml)$|(BUILD|WORKSPACE|run)$")
_LEAST_WORDS = 10


def folders(root):
    """Paths below `root` of folders that hold files of the project, or folders that do."""
    found = set()
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name == ".ci" or not name.startswith((".", "bazel-", "__"))]
        path = os.path.relpath(folder, root)
        if any(map(_WRITTEN.match, names)) or (names and path.startswith("tests/")):
            while path not in ("", "."):
                found.add(path)
                path = os.path.dirname(path)
    return found


def check_folder(root, folder):
    """What is wrong with the README.md of `folder`, or None."""
    path = os.path.join(root, folder, "README.md")
    if not os.path.exists(path):
        return "there is none"
    with open(path, encoding="utf-8") as file:
        title, text = file.readline().rstrip(), file.read()
    if title != f"# {folder}":
        return f"its first line is '{title}', not '# {folder}'"
    if len(text.split()) < _LEAST_WORDS:
        return f"it says less than {_LEAST_WORDS} words"
    return None


def check_tree(root):
    """Everything wrong with the tree, one line each."""
    problems = ((folder, check_folder(root, folder)) for folder in sorted(folders(root)))
    return [f"{folder}/README.md: {problem}" for folder, problem in problems if problem]


def write(root, path, text):
    os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def self_test():
    """Plants what is wrong in a small tree; returns what went unnoticed, or was taken to be wrong."""
    enough = "word " * _LEAST_WORDS
    with tempfile.TemporaryDirectory() as root:
        write(root, "core/README.md", "# core\n\n" + enough)
        write(root, "core/base/a.cc", "")
        write(root, "core/data/README.md", "# data\n\n" + enough)
        write(root, "core/data/a.h", "")
        write(root, "core/graph/README.md", "# core/graph\n\nGraphs.\n")
        write(root, "tests/data/README.md", "# tests/data\n\n" + enough)
        write(root, "tests/data/a.cc", "")
        write(root, "tests/data/golden/shards", "")
        write(root, ".ci/run", "")
        write(root, ".cache/tool/BUILD", "")
        write(root, "logs/events.out", "")
        found = check_tree(root)
    expected = [".ci/", "core/base/", "core/data/", "core/graph/", "tests/README", "tests/data/golden/"]
    as_expected = len(found) == len(expected) and all(map(str.startswith, found, expected))
    return [] if as_expected else [f"self-test: expected complaints about {expected}, found {found}"]


if __name__ == "__main__":
    source_tree.run_test(self_test, check_tree, "each folder tells what it is")
