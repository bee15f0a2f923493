"""Headers of the standard library, parsed once for all sources."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//tools:compile_flags.bzl", "COMPILE_FLAGS")

# How test programs are compiled: in three quarters of the time; what they test is in libraries, which are
# optimised, but for inline functions and templates, of which the test may have the copy that all use.
# (_FORTIFY_SOURCE needs an optimiser.)
UNOPTIMISED = ["-O0", "-U_FORTIFY_SOURCE"]

def _precompiled_header_impl(ctx):
    # In the output folder alone: a compiler that finds the header in the source tree looks no further.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + COMPILE_FLAGS + ctx.attr.copts
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = precompiled.path,
        user_compile_flags = ["-x", "c++-header"] + flags,
        quote_include_directories = depset([ctx.label.workspace_root or "."]),
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([header, ctx.file.src] + ctx.files.deps, transitive = [toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling " + header.short_path,
        execution_requirements = {"no-sandbox": "1"},
    )
    context = cc_common.create_compilation_context(headers = depset([header, precompiled]))
    return [CcInfo(compilation_context = context), DefaultInfo(files = depset([header, precompiled]))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "deps": attr.label_list(allow_files = [".h"]),
        "copts": attr.string_list(doc = "The optimisation of the sources it is for: GCC 12 crashes on another's, or forgets its own."),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
