"""The C++ targets of the project: one place for warnings, visibility and defaults."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load("//tools:compile_flags.bzl", "COMPILE_FLAGS")
load("//tools/precompiled:precompiled_header.bzl", "UNOPTIMISED")

# Where actions find the root of this source tree: "external/..." in a workspace that uses Cohort.
_ROOT = Label("//tools:cohort.bzl").workspace_root or "."

# -Wno-missing-field-initializers: options are aggregates, set by designated initialisers.
_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wno-missing-field-initializers",
    "-Wno-restrict",
]

# Only for who works on Cohort: compilers of others may warn of more.
# -Wno-error=...: these depend on the optimiser, and GCC 12 has false positives in all of them.
_ERRORS = [] if _ROOT != "." else [
    "-Werror",
    "-Wno-error=array-bounds",
    "-Wno-error=free-nonheap-object",
    "-Wno-error=maybe-uninitialized",
    "-Wno-error=stringop-overflow",
    "-Wno-error=stringop-overread",
]

def _copts(copts, deps, precompiled = None):
    # Only who names Eigen or MPI can include it: it never reaches a user through a public header.
    # A select() cannot be looked into, and chooses neither.
    names = deps if type(deps) == "list" else []
    eigen = ["-isystem/usr/include/eigen3"] if "//third_party:eigen" in names else []
    mpi = ["-isystem/usr/include/x86_64-linux-gnu/openmpi"] if "//third_party:mpi" in names else []
    header = ["-include", "tools/precompiled/%s.h" % precompiled] if precompiled else []
    return COMPILE_FLAGS + _WARNINGS + _ERRORS + eigen + mpi + header + copts

def _precompiled(copts):
    # GCC 12 fails on precompiled headers of another optimisation, or forgets its own.
    if "-O3" in copts:
        return None
    return "standard_O1" if "-O1" in copts else "standard"

def cohort_library(name, srcs = None, hdrs = None, deps = [], copts = [], cold = False, **kwargs):
    """A library: by default of every source and header of the folder, tests apart.

    Includes are written from the repository root: `#include "core/base/error.h"`. A library that registers
    something from a static object (an op, a kernel, a gradient) needs `alwayslink = True`.

    Args:
      cold: whether it does no work on elements in every step; optimised less, it compiles in two
        thirds of the time.
    """
    kwargs.setdefault("visibility", ["//visibility:public"])
    copts = (["-O1"] if cold else []) + copts
    precompiled = _precompiled(copts)
    cc_library(
        name = name,
        srcs = native.glob(["*.cc"], exclude = ["*_test.cc"]) if srcs == None else srcs,
        hdrs = native.glob(["*.h"]) if hdrs == None else hdrs,
        copts = _copts(copts, deps, precompiled),
        deps = deps + ["//third_party:openmp"] + (["//tools/precompiled:" + precompiled] if precompiled else []),
        **kwargs
    )

def cohort_test(name, srcs = None, deps = [], copts = [], size = "small", **kwargs):
    """A GoogleTest program; `srcs` defaults to NAME.cc."""
    cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = _copts(UNOPTIMISED + copts, deps, "testing"),
        size = size,
        deps = deps + ["//third_party:gtest_main", "//tools:sanitizers", "//tools/precompiled:testing"],
        **kwargs
    )

def cohort_binary(name, srcs = None, deps = [], copts = [], **kwargs):
    """A program; `srcs` defaults to NAME.cc."""
    kwargs.setdefault("visibility", ["//visibility:public"])
    cc_binary(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = _copts(copts, deps, "standard"),
        deps = deps + ["//tools:sanitizers", "//tools/precompiled:standard"],
        **kwargs
    )

def cohort_proto(name, src = None, deps = [], grpc = False, **kwargs):
    """The C++ library of one .proto file, which defaults to NAME.proto.

    Args:
      deps: the `cohort_proto` targets of the files it imports, written "//folder:name" or ":name".
      grpc: whether to generate its services too (NAME.grpc.pb.h).
    """
    src = src or name + ".proto"
    kwargs.setdefault("visibility", ["//visibility:public"])

    # protoc reads imported files as well, so that each target carries the sources of all below it.
    native.filegroup(
        name = name + "_protos",
        srcs = [src] + [dep + "_protos" for dep in deps],
        **kwargs
    )

    stem = src[:-len(".proto")]
    kinds = [".pb"] + ([".grpc.pb"] if grpc else [])
    plugin = "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR)/" + _ROOT if grpc else ""
    path = "/".join([_ROOT, native.package_name(), src])
    native.genrule(
        name = name + "_protoc",
        srcs = [name + "_protos"],
        outs = [stem + kind + ext for kind in kinds for ext in [".cc", ".h"]],
        cmd = "protoc -I%s --cpp_out=$(GENDIR)/%s %s %s" % (_ROOT, _ROOT, plugin, path),
    )
    cc_library(
        name = name,
        srcs = [stem + kind + ".cc" for kind in kinds],
        hdrs = [stem + kind + ".h" for kind in kinds],
        copts = COMPILE_FLAGS,
        deps = deps + ["//third_party:grpc" if grpc else "//third_party:protobuf"],
        **kwargs
    )
