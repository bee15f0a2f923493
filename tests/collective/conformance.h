#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/collective/ranks.h"

// What every Communicator must do, whatever its backend. A backend's test instantiates it and links
// this library:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorConformanceTest,
//                            groups_of({{"Plain", make_plain}, {"Checked", make_checked}}),
//                            group_name);
//
// The tests compare what ranks see through the communicators alone, so that ranks may be processes.
namespace cohort::testing {

struct Backend {
  std::string name;
  // Makes a new group: the ranks of it that live in this process, which may be none.
  std::function<Group(int size)> make;
};

class CommunicatorConformanceTest : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  Group make() const { return std::get<0>(GetParam()).make(size()); }
  // Runs `work` on every rank of a new group.
  void on_all(const RankWork& work) const { on_ranks(make(), work); }
};

// Every backend in groups of 1 to 8 ranks.
inline auto groups_of(const std::vector<Backend>& backends) {
  return ::testing::Combine(::testing::ValuesIn(backends), ::testing::Range(1, 9));
}
// In groups of some sizes, which others or other backends complete.
inline auto groups_of(const std::vector<Backend>& backends, const std::vector<int>& sizes) {
  return ::testing::Combine(::testing::ValuesIn(backends), ::testing::ValuesIn(sizes));
}
// "Plain5".
inline std::string group_name(const ::testing::TestParamInfo<std::tuple<Backend, int>>& info) {
  return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
}
// For messages of GoogleTest.
inline std::ostream& operator<<(std::ostream& out, const Backend& backend) {
  return out << backend.name;
}

}  // namespace cohort::testing
