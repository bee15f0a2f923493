#include "core/kernels/cuda/runtime_compiler.h"

#include <gtest/gtest.h>

#include "core/kernels/cuda/program_source.h"
#include "tests/kernels/cuda/sample_programs.h"

// The compiler at run time needs no GPU to compile.
namespace cohort::testing {
namespace {

cuda::ProgramSource source_of(const SampleProgram& sample) {
  const auto width = sample.outputs.size() / static_cast<size_t>(sample.groups);
  return cuda::program_source(
      sample.program, sample.compute,
      {sample.inputs.begin(), sample.inputs.begin() + sample.program.num_inputs},
      {sample.outputs.begin(), sample.outputs.begin() + static_cast<int64_t>(width)});
}

TEST(RuntimeCompiler, CompilesThePrograms) {
  for (const SampleProgram& sample : sample_programs()) {
    const std::string ptx = cuda::compile_source(source_of(sample).text, "compute_90");
    EXPECT_NE(ptx.find(".entry run("), std::string::npos) << sample.name;
  }
}

// The groups' words, 4 KiB, would be in local memory if each thread copied them.
TEST(RuntimeCompiler, LeavesParametersWhereTheyAre) {
  const SampleProgram updates = sample_programs().back();
  ASSERT_GT(updates.groups, 1);
  const std::string ptx = cuda::compile_source(source_of(updates).text, "compute_90");
  EXPECT_NE(ptx.find(".param"), std::string::npos);
  EXPECT_EQ(ptx.find(".local"), std::string::npos) << ptx;
}

TEST(RuntimeCompiler, MakesMachineCode) {
  const std::string code = cuda::compile_source(source_of(sample_programs().front()).text, "sm_90");
  EXPECT_EQ(code.substr(1, 3), "ELF");
}

TEST(RuntimeCompiler, ShowsWhatIsWrongWithASource) {
  try {
    cuda::compile_source("extern \"C\" __global__ void run() { undeclared = 1; }", "sm_90");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInternal);
    EXPECT_NE(error.message().find("undeclared"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace cohort::testing
