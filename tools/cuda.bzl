"""How CUDA's sources are compiled."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def _linked_impl(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]

# A library for others to be linked with, and not compiled with: on its headers, those of CUDA, the rest of the tree
# does not depend, and is built once with --config=cuda and without.
linked = rule(
    implementation = _linked_impl,
    attrs = {"library": attr.label(providers = [CcInfo], mandatory = True)},
)

# -gencode: machine code for Hopper, and PTX for whatever comes after it. --extended-lambda and
# --expt-relaxed-constexpr let kernels be written as lambdas that call constexpr functions. 20012, 20014: host
# functions called on the device from defaulted members of std:: types that never run there.
_NVCC_FLAGS = [
    "-x",
    "cu",
    "-std=c++20",
    "-O3",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    "--extended-lambda",
    "--expt-relaxed-constexpr",
    "-diag-suppress=20012,20014",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-fno-semantic-interposition,-march=x86-64-v3",
]

def _nvcc_object_impl(ctx):
    source = ctx.file.src
    output = ctx.actions.declare_file(ctx.label.name + ".o")
    headers = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps]
    ctx.actions.run(
        outputs = [output],
        inputs = depset([source], transitive = headers),
        executable = ctx.executable._nvcc,
        arguments = _NVCC_FLAGS + ["-I" + (ctx.label.workspace_root or "."), "-c", source.path, "-o", output.path],
        mnemonic = "CudaCompile",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([output]))]

_nvcc_object = rule(
    implementation = _nvcc_object_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cu.cc"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_nvcc": attr.label(
            default = "@cuda//:nvcc",
            allow_single_file = True,
            executable = True,
            cfg = "host",
        ),
    },
)

def cuda_library(name, srcs, deps = [], **kwargs):
    """A library of sources that nvcc compiles; only `--config=cuda` can build it.

    Args:
      srcs: NAME.cu.cc files; without nvcc they are C++ too, whose kernels run on the host (launch.h).
    """
    objects = []
    for source in srcs:
        object = name + "_" + source[:-len(".cu.cc")]
        objects.append(object)
        _nvcc_object(
            name = object,
            src = source,
            deps = deps,
            tags = ["manual"],
        )
    cc_library(
        name = name,
        srcs = objects,
        deps = deps + ["@cuda//:cudart"],
        tags = ["manual"],
        **kwargs
    )
