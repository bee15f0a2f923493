"""Stand-in for @rules_java//java:defs.bzl; Bazel's own JDK package loads it."""

java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
