#!/usr/bin/env -S python3 -B
"""Installs what //tools/install has built: `install.py PREFIX`, in its runfiles, where built files lie beside sources.

What is there of an earlier installation is replaced, a file at a time, so that running programs keep what they have
loaded; nothing else in PREFIX is touched. Ends with 1, and says why, where a file cannot be written.
"""

import os
import pathlib
import re
import shutil
import sys

_TREE = pathlib.Path(__file__).absolute().parents[2]
# What programs may name; with these comes what they include.
_PUBLIC_HEADERS = [
    "cohort.h",
    # For ops of one's own, with core/kernels/kernel.h, which comes with cohort.h.
    "core/base/threads.h",
    "core/graph/op.h",
    "strategies/parameter_server/server.h",
]
_PROGRAMS = {
    "cohort-cluster": "strategies/cluster/check/cohort_cluster",
    "cohort-run": "strategies/cluster/launcher/cohort_run",
}
_INCLUDE = re.compile(r'^(#include ")([^"]+)(?=")', re.MULTILINE)


def public_headers(tree):
    """The text of each header that programs get to see, by its path in the source tree."""
    texts, found = {}, list(_PUBLIC_HEADERS)
    while found:
        path = found.pop()
        if path not in texts:
            texts[path] = (tree / path).read_text(encoding="utf-8")
            found += [path for _, path in _INCLUDE.findall(texts[path])]
    return texts


def relative_includes(path, text):
    """The text with includes that no folder of a program's own, such as `core`, can come before."""
    folder = os.path.dirname(path)
    return _INCLUDE.sub(lambda include: include[1] + os.path.relpath(include[2], folder), text)


def replace_file(source, target, mode):
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, new)
    new.chmod(mode)
    new.replace(target)


def replace_link(destination, target):
    new = target.with_name(f".{target.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(destination)
    new.replace(target)


def replace_headers(headers, target):
    """Puts the headers into a folder that has been another's, of which nothing may stay."""
    new, old = (target.with_name(f".{target.name}.{age}") for age in ("new", "old"))
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    for path, text in headers.items():
        (new / path).parent.mkdir(parents=True, exist_ok=True)
        (new / path).write_text(relative_includes(path, text), encoding="utf-8")
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def install(prefix):
    """What says that the library is there comes last."""
    built = _TREE / "tools/install"
    (library,) = built.glob("libcohort.so.*")
    for name, program in _PROGRAMS.items():
        replace_file(_TREE / program, prefix / "bin" / name, 0o755)
    replace_file(library, prefix / "lib" / library.name, 0o644)
    replace_link(library.name, prefix / "lib/libcohort.so")
    replace_headers(public_headers(_TREE), prefix / "include/cohort")
    for name in ("CohortConfigVersion.cmake", "CohortConfig.cmake"):
        replace_file(built / name, prefix / "lib/cmake/Cohort" / name, 0o644)
    replace_file(built / "cohort.pc", prefix / "lib/pkgconfig/cohort.pc", 0o644)


def main():
    prefix = pathlib.Path(sys.argv[1])
    os.umask(0o022)  # for all users, whatever whoever installs gives them of other files
    try:
        install(prefix)
    except OSError as error:
        sys.exit(f"cannot install into {prefix}: {error}")
    print(f"Cohort is in {prefix}: " + ", ".join(f"bin/{name}" for name in _PROGRAMS) + ", include/cohort and lib")
    print(f"  CMake:      -DCMAKE_PREFIX_PATH={prefix}")
    print(f"  pkg-config: PKG_CONFIG_PATH={prefix}/lib/pkgconfig")


if __name__ == "__main__":
    main()
