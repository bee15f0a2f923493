#include <iostream>

#include "core/kernels/cuda/program_source.h"
#include "tests/kernels/cuda/sample_programs.h"

// Writes the sources of the sample programs as functions of a C++ file.
int main() {
  using namespace cohort;
  std::cout << "#include \"tests/kernels/cuda/host_threads.h\"\n\n#include <cstring>\n\n";
  std::string table;
  int number = 0;
  for (const auto& sample : cohort::testing::sample_programs()) {
    const auto inputs = sample.inputs.size() / static_cast<size_t>(sample.groups),
               outputs = sample.outputs.size() / static_cast<size_t>(sample.groups);
    // The last group, which is not empty.
    const auto source = cuda::program_source(
        sample.program, sample.compute,
        {sample.inputs.end() - static_cast<int64_t>(inputs), sample.inputs.end()},
        {sample.outputs.end() - static_cast<int64_t>(outputs), sample.outputs.end()});
    std::cout << "#define run run_" << number << "\n#define Groups Groups_" << number << "\n"
              << source.text << "static void call_" << number
              << "(const int64_t* words) {\n  Groups groups;\n"
                 "  std::memcpy(&groups, words, sizeof(groups));\n  run(groups);\n}\n"
              << "#undef run\n#undef Groups\n\n";
    table += str("call_", number++, ", ");
  }
  std::cout << "namespace cohort::testing {\nconst std::vector<HostProgram> kHostPrograms = {"
            << table << "};\n}\n";
}
