"""Where the CUDA toolkit is."""

# What a toolkit must have, and which download brings it.
_PARTS = {
    "bin/nvcc": "CUDA Toolkit 13",
    "include/cublasLt.h": "cuBLAS of CUDA Toolkit 13",
    "include/cudnn.h": "cuDNN 9",
    "include/nccl.h": "NCCL 2.28",
    "include/nvrtc.h": "NVRTC of CUDA Toolkit 13",
}

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(["nvcc"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/*", "include/nccl_device/**"]),
    includes = ["include"],
)

[cc_library(
    name = library,
    linkopts = ["-L{path}/lib64", "-Wl,-rpath,{path}/lib64", "-l" + library],
    deps = [":headers"],
) for library in ["cudart", "cublasLt", "cudnn", "nccl", "nvrtc"]]
"""

def _cuda_toolkit_impl(ctx):
    path = ctx.os.environ.get("CUDA_PATH", "/usr/local/cuda")
    for part, source in _PARTS.items():
        if not ctx.path(path + "/" + part).exists:
            fail(("--config=cuda: there is no %s/%s. Install %s there, or name its folder by CUDA_PATH; " +
                  "without --config=cuda nothing of it is needed.") % (path, part, source))
    ctx.symlink(path + "/include", "include")
    ctx.file("BUILD", _BUILD.format(path = path))
    # Not a link, because nvcc finds its folder by its name.
    ctx.file("nvcc", "#!/bin/sh\nexec %s/bin/nvcc \"$@\"\n" % path, executable = True)

# Looked at only by what `--config=cuda` selects, so that other builds need no toolkit.
cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_PATH"],
    local = True,
)
