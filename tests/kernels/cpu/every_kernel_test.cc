// Whether each kernel has a test in this folder: its op's name, in quotes, anywhere in their text.
// That the test compares the kernel with a reference is for its author to see to.
#include <filesystem>
#include <set>

#include "core/base/file.h"
#include "core/kernels/registry.h"
#include "core/tensor/elementwise_program.h"
#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

// All tests of this folder, one after the other.
std::string tests() {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator("tests/kernels/cpu"))
    if (entry.path().string().ends_with("_test.cc")) text += read_file(entry.path().string());
  return text;
}

// elementwise_test.cc goes through the operations of a tile by their numbers.
std::set<std::string> of_tiles() {
  std::set<std::string> names;
  for (int64_t i = 0; i < static_cast<int64_t>(Scalar::kCount); ++i)
    names.emplace(scalar_name(static_cast<Scalar>(i)));
  return names;
}

TEST(EveryKernel, IsRunByATest) {
  const std::string text = tests();
  const std::set<std::string> tiles = of_tiles();
  const auto ops = ops_with_kernel(DeviceType::kCpu);
  EXPECT_GT(ops.size(), 90u) << "are they linked?";
  for (const std::string& op : ops)
    EXPECT_TRUE(tiles.contains(op) || text.find(str('"', op, '"')) != std::string::npos)
        << op << " has a kernel, and no test of tests/kernels/cpu names it";
}

}  // namespace
}  // namespace cohort::testing
