"""The repositories that Cohort's targets name."""

load("//third_party:cuda_toolkit.bzl", "cuda_toolkit")

def _stand_in_impl(ctx):
    for entry in ctx.path(Label("//third_party:BUILD")).dirname.get_child("bazel").readdir():
        ctx.symlink(entry, entry.basename)

# By way of a label, because a local_repository would look for the folder in the workspace that uses Cohort.
_stand_in = repository_rule(implementation = _stand_in_impl, local = True)

def cohort_repositories():
    """Declares what building Cohort needs, in its own WORKSPACE and in those that use it.

    That is CUDA's toolkit, which nothing looks at without --config=cuda, and in-tree stand-ins for rules_cc,
    rules_java and remote_coverage_tools: Bazel 4's own toolchains load these even for a plain C++ target. The
    stand-ins forward to the rules built into Bazel, so that a build needs no network. Official releases know
    their version and fetch the real repositories, which they pin themselves; Debian's bazel-bootstrap has none.
    A repository that the workspace has declared before stays.
    """
    stand_ins = [] if native.bazel_version else ["rules_cc", "rules_java", "remote_coverage_tools"]
    for name in stand_ins:
        if not native.existing_rule(name):
            _stand_in(name = name)
    if not native.existing_rule("cuda"):
        cuda_toolkit(name = "cuda")
