// Starts a local cluster of any program: docs/cohort-run.md.
#include "core/base/program.h"
#include "strategies/cluster/launcher/launch.h"

int main(int argc, char** argv) {
  int code = 0;
  const int error = cohort::run_main([&] { code = cohort::launcher::launch(argc, argv); });
  return error ? error : code;
}
