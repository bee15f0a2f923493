"""The rule repositories that Bazel would otherwise download."""

def declare_bazel_rules():
    """Declares in-tree stand-ins for rules_cc, rules_java and remote_coverage_tools.

    Bazel 4's own toolchains load these repositories even for a plain C++ target. The stand-ins forward to
    the rules built into Bazel, so that a build needs no network. Official releases know their version and
    fetch the real repositories, which they pin themselves; Debian's bazel-bootstrap has none.
    """
    if native.bazel_version:
        return
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        native.local_repository(name = name, path = "third_party/bazel")
