#!/usr/bin/env -S python3 -B
"""Checks that includes follow the layers of the source tree, and that third-party headers stay where they belong.

Bazel runs it as //tools:include_direction_test, straight in the source tree.
"""

import os
import re
import tempfile

import source_tree

# What each folder may include of this project, besides itself. A folder stands for all below it; the entry
# with the longest path that fits a file decides. A file that no entry covers may include nothing.
_DEVICE = ["core/base", "core/tensor", "core/device"]
_GRAPH = _DEVICE + ["core/graph", "core/collective"]
_DISTRIBUTE = _GRAPH + ["core/ops", "core/runtime", "core/distribute"]
_EVERYTHING = ["cohort.h", "core", "strategies", "proto", "tests", "tools"]
LAYERS = {
    "core/base": [],
    "core/tensor": ["core/base"],
    "core/device": ["core/base", "core/tensor"],
    "core/graph": _DEVICE + ["proto"],
    "core/collective": _DEVICE,
    "core/kernels": _DEVICE + ["core/collective"],
    "core/ops": _GRAPH,
    # The registry of kernels, never a kernel.
    "core/runtime": _GRAPH + ["core/kernels/kernel.h", "core/kernels/common/host_kernel.h", "core/kernels/common/scratch.h"],
    "core/distribute": _GRAPH + ["core/ops", "core/runtime"],
    "core/nn": _DISTRIBUTE,
    "core/optim": _DISTRIBUTE,
    "core/data": _DISTRIBUTE,
    "core/train": ["core", "proto"],
    "strategies": ["core", "proto"],
    # Who takes part in a job is known before there is anything to train.
    "strategies/cluster": ["core/base", "proto"],
    "strategies/cluster/net": ["core/base"],
    "strategies/cluster/check": ["core/base", "strategies/cluster", "strategies/collective/settings.h"],
    "cohort.h": ["core", "strategies"],
    "examples": ["cohort.h"],
    "benchmarks": _EVERYTHING,
    "tests": _EVERYTHING,
    "tests/benchmarks": _EVERYTHING + ["benchmarks"],
    "tools": _EVERYTHING,
}

# Who may include a header of another project: (which headers, which files, in words). The first entry that
# fits a header decides; headers that none fits are free.
_TESTS = r"(tests|benchmarks)/|"
HEADERS = [
    (
        r".*\.pb\.h$|grpc(pp)?/|google/protobuf/",
        _TESTS + r"strategies/(cluster|parameter_server|coordinator)/.*\.cc$|core/graph/serialization\w*\.cc$"
        r"|core/train/\w*(summary|tensorboard)\w*\.cc$",
        "gRPC and protobuf belong in the .cc files of strategies/cluster, parameter_server, coordinator and the serialisers",
    ),
    (
        r"(unsupported/)?Eigen/|dnnl\.hpp?$|oneapi/|omp\.h$",
        _TESTS + r".*\.cc$|core/kernels/",
        "Eigen, oneDNN and OpenMP belong in .cc files and inside core/kernels",
    ),
    (
        r"(cuda|cublas|cudnn|curand|nvrtc|nvtx|nvToolsExt)\w*(\.h|/)|nccl\.h$|cub/|thrust/",
        r"core/(device|kernels)/cuda/|strategies/collective/nccl/",
        "CUDA and NCCL belong in core/device/cuda, core/kernels/cuda and strategies/collective/nccl",
    ),
    (
        r"openssl/",
        _TESTS + r"strategies/cluster/net/.*\.cc$",
        "OpenSSL belongs in the .cc files of strategies/cluster/net",
    ),
    (r"mpi\.h$", r"(tests/)?strategies/collective/mpi/", "MPI belongs in strategies/collective/mpi"),
]

_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def sources(root):
    """Paths below `root` of the C++ sources in the folders that LAYERS knows, and in new ones of core."""
    for top in sorted({layer.split("/")[0] for layer in LAYERS}):
        if top.endswith(".h"):
            yield from [top] if os.path.exists(os.path.join(root, top)) else []
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".cu", ".cuh")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    return max((layer for layer in LAYERS if within(path, layer)), key=len, default=None)


def check_include(root, path, quoted, header):
    """What is wrong with `path` including `header`, or None."""
    for headers, files, rule in HEADERS:
        if re.match(headers, header):
            if not re.match(files, path):
                return rule
            break
    if not quoted:
        return None
    if not header.endswith(".pb.h") and not os.path.exists(os.path.join(root, header)):
        return "no such file; project headers are written from the repository root, others in <>"
    layer = layer_of(path)
    if layer is None:
        return "this folder has no place in the layers of tools/include_direction_test.py"
    if not any(within(header, allowed) for allowed in [layer] + LAYERS[layer]):
        return f"{layer} may include only {', '.join(LAYERS[layer]) or 'itself'}"
    return None


def find_cycle(graph):
    """A list of nodes, each leading to the next and the last to the first, or None."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node) :]
        if node in done:
            return None
        trail.append(node)
        cycle = next(filter(None, map(visit, sorted(graph.get(node, ())))), None)
        trail.pop()
        done.add(node)
        return cycle

    return next(filter(None, map(visit, sorted(graph))), None)


def check_tree(root):
    """Everything wrong with the tree, one line each."""
    problems, folders = [], {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                include = _INCLUDE.match(line)
                if not include:
                    continue
                quoted, header = include[1] == '"', include[2]
                problem = check_include(root, path, quoted, header)
                if problem:
                    problems.append(f"{path}:{number}: {header}: {problem}")
                here, there = os.path.dirname(path), os.path.dirname(header)
                if quoted and here != there:
                    folders.setdefault(here, set()).add(there)
    cycle = find_cycle(folders)
    if cycle:
        problems.append("include cycle between folders: " + " -> ".join(cycle + cycle[:1]))
    return problems


# One planted violation per rule: file, its include line, words of the complaint.
_PLANTED = [
    ("core/base/a.h", '"core/tensor/ok.h"', "core/base may include only"),
    ("core/graph/a.cc", '"core/kernels/kernel.h"', "core/graph may include only"),
    ("core/runtime/a.cc", '"core/kernels/cpu/ok.h"', "core/runtime may include only"),
    ("core/runtime/a.cc", '"core/ops/ok.h"', "core/runtime may include only"),
    ("core/nn/a.h", '"core/optim/ok.h"', "core/nn may include only"),
    ("core/train/a.cc", '"strategies/ok.h"', "core/train may include only"),
    ("core/new/a.cc", '"core/base/ok.h"', "no place in the layers"),
    ("core/base/a.cc", '"ok.h"', "no such file"),
    ("examples/a.cc", '"core/base/ok.h"', "examples may include only cohort.h"),
    ("strategies/cluster/a.h", '"proto/ok.pb.h"', "gRPC and protobuf belong"),
    ("core/train/a.cc", "<grpcpp/grpcpp.h>", "gRPC and protobuf belong"),
    ("strategies/cluster/a.cc", "<mpi.h>", "MPI belongs"),
    ("strategies/cluster/net/a.h", "<openssl/ssl.h>", "OpenSSL belongs"),
    ("core/tensor/a.h", "<Eigen/Core>", "Eigen, oneDNN and OpenMP belong"),
    ("core/kernels/cpu/a.cc", "<cuda_runtime.h>", "CUDA and NCCL belong"),
    ("strategies/cluster/a.cc", '"core/distribute/ok.h"', "strategies/cluster may include only"),
    ("strategies/cluster/net/a.cc", '"strategies/cluster/ok.h"', "strategies/cluster/net may include only"),
    ("strategies/a.h", '"strategies/variables/back.h"', "include cycle between folders: strategies -> strategies/variables"),
]
# Includes that must pass.
_ALLOWED = [
    ("core/runtime/ok.cc", '"core/kernels/kernel.h"'),
    ("core/train/ok.cc", '"core/nn/ok.h"'),
    ("core/graph/serialization.cc", '"proto/ok.pb.h"'),
    ("core/kernels/cpu/ok.cc", "<dnnl.hpp>"),
    ("core/kernels/cpu/ok.cc", '"core/kernels/kernel.h"'),
    ("core/device/cuda/ok.cc", "<cuda_runtime.h>"),
    ("strategies/cluster/ok.cc", "<grpcpp/grpcpp.h>"),
    ("strategies/variables/back.h", '"strategies/ok.h"'),
    ("strategies/collective/mpi/ok.h", "<mpi.h>"),
    ("examples/ok.cc", '"cohort.h"'),
    ("tests/ok.cc", '"core/train/ok.h"'),
]


def plant(root, path, include=None):
    os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
    with open(os.path.join(root, path), "a", encoding="utf-8") as file:
        file.write(f"#include {include}\n" if include else "")


def self_test():
    """Plants each violation in a small tree that is in order otherwise; returns what went unnoticed."""
    failures = []
    for path, include, complaint in [(None, None, None)] + _PLANTED:
        with tempfile.TemporaryDirectory() as root:
            for layer in LAYERS:
                plant(root, layer if layer.endswith(".h") else layer + "/ok.h")
            for extra in ["core/kernels/kernel.h", "core/kernels/cpu/ok.h"]:
                plant(root, extra)
            for allowed in _ALLOWED:
                plant(root, *allowed)
            if path:
                plant(root, path, include)
            problems = check_tree(root)
            if path is None and problems:
                failures.append(f"self-test: complaints about a tree in order: {problems}")
            if path and not (len(problems) == 1 and complaint in problems[0]):
                failures.append(f"self-test: {path} including {include}: expected '{complaint}', found {problems}")
    return failures


if __name__ == "__main__":
    source_tree.run_test(self_test, check_tree, "includes follow the layers")
