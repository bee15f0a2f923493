#pragma once

namespace cohort::launcher {

// The program cohort-run: docs/cohort-run.md describes it. To be called within run_main(), which
// has opened standard streams that were closed. Returns its exit code. Errors: kInvalidArgument for
// a wrong command line, kNotFound and kPermissionDenied for a program that cannot be run.
int launch(int argc, char** argv);

}  // namespace cohort::launcher
