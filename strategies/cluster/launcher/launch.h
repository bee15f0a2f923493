#pragma once

namespace cohort::launcher {

// The program cohort-run: docs/cohort-run.md describes it. Returns its exit code. Errors:
// kInvalidArgument for a wrong command line, kNotFound and kPermissionDenied for a program that
// cannot be run.
int launch(int argc, char** argv);

}  // namespace cohort::launcher
