"""What a shared library is made of, and the headers that go with it."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _whole(ctx, library):
    if library.alwayslink or not library.pic_static_library:
        return library
    toolchain = find_cpp_toolchain(ctx)
    return cc_common.create_library_to_link(
        actions = ctx.actions,
        feature_configuration = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain),
        cc_toolchain = toolchain,
        pic_static_library = library.pic_static_library,
        alwayslink = True,
    )

def _whole_library_impl(ctx):
    whole = [
        cc_common.create_linker_input(
            owner = input.owner,
            libraries = depset([_whole(ctx, library) for library in input.libraries]),
            user_link_flags = depset(input.user_link_flags),
            additional_inputs = depset(input.additional_inputs),
        )
        for input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list()
    ]
    inputs = depset(whole, order = "topological")
    return [CcInfo(linking_context = cc_common.create_linking_context(linker_inputs = inputs))]

# A library and all below it, for a shared library that has each of their objects: what programs will call is not known
# when it is linked.
whole_library = rule(
    implementation = _whole_library_impl,
    attrs = {
        "library": attr.label(providers = [CcInfo], mandatory = True),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _header_files_impl(ctx):
    headers = ctx.attr.library[CcInfo].compilation_context.headers.to_list()
    written = depset([header for header in headers if header.is_source and header.extension == "h"])
    return [DefaultInfo(files = written, runfiles = ctx.runfiles(transitive_files = written))]

# The headers of the source tree that a library and all below it have.
header_files = rule(
    implementation = _header_files_impl,
    attrs = {"library": attr.label(providers = [CcInfo], mandatory = True)},
)
