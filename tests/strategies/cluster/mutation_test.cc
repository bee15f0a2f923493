// Whatever stands in a variable, reading it ends with a cluster or with an Error that says what is
// wrong: no other exception, no crash, no waiting.

#include <algorithm>

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "strategies/cluster/cluster_spec.h"
#include "strategies/cluster/host_list.h"
#include "strategies/cluster/resolve_cluster.h"
#include "tests/strategies/cluster/testing.h"
#include "tests/testing/trials.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::Variables;

// What mutations insert: the letters and words of all grammars, and things that break parsers.
const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {"{",          "}",
                                               "[",          "]",
                                               "\"",         ":",
                                               ",",          "-",
                                               "(",          ")",
                                               "(x",         "\\",
                                               "\n",         " ",
                                               "0",          "9",
                                               "99999999",   "-1",
                                               "1.5",        "1e9",
                                               "null",       "true",
                                               "\"worker\"", "\"index\"",
                                               "[1-9]",      "[0-999999999]",
                                               "[::1]:1",    "a:1",
                                               "\xff",       std::string(1, '\0'),
                                               "%s%n",       "18446744073709551616"};
  return all;
}

void mutate(std::string& text, RandomStream& random) {
  const size_t at = random.below(text.size() + 1);
  const size_t count = std::min<size_t>(1 + random.below(8), text.size() - at);
  switch (random.below(5)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random.below(256));
      break;
    case 1:
      text.erase(at, count);
      break;
    case 2:
      text.insert(at, words()[random.below(words().size())]);
      break;
    case 3:
      text.insert(at, text.substr(at, count));
      break;
    default:
      text.resize(at);
  }
}

// Reads mutations of each variable of a sound environment, and of several at once.
void expect_errors_only(const Variables& sound, const std::function<void(const Variables&)>& read) {
  read(sound);
  const auto [first, count] = cohort::testing::trials(0, 3000);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RandomStream random(seed);
    Variables variables = sound;
    for (uint64_t i = 0; i <= random.below(4); ++i) {
      const auto which =
          std::next(variables.begin(), static_cast<std::ptrdiff_t>(random.below(variables.size())));
      mutate(which->second, random);
    }
    SCOPED_TRACE(str("seed ", seed));
    try {
      read(variables);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_LT(error.message().size(), 1000u) << error.what();
    }
  }
}

void resolve(const Variables& variables) {
  const auto cluster = resolve_cluster(environment(variables));
  // What was accepted is a cluster that can be asked and written down.
  EXPECT_EQ(ClusterSpec::from_json(cluster.resolver->cluster_spec().json()),
            cluster.resolver->cluster_spec());
}

TEST(Mutation, TFConfig) {
  expect_errors_only(
      {{"TF_CONFIG",
        R"({"cluster": {"chief": ["[2001:db8::1]:2222"], "worker": {"0": "a:1", "2": "b:2"},
            "ps": ["p.example.com:65535"]}, "task": {"type": "worker", "index": "2"},
            "rpc_layer": "grpc", "environment": "cloud", "session_master": "m"})"}},
      resolve);
}

TEST(Mutation, Slurm) {
  expect_errors_only({{"SLURM_PROCID", "3"},
                      {"SLURM_STEP_NUM_TASKS", "9"},
                      {"SLURM_STEP_NODELIST", "rack[1-2]n[01-02]-ib,m5"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x4),1"},
                      {"SLURM_DISTRIBUTION", "plane=2"},
                      {"SLURM_JOB_ID", "1234"},
                      {"SLURM_STEP_ID", "0"},
                      {"CUDA_VISIBLE_DEVICES", "0,1"}},
                     resolve);
}

TEST(Mutation, Torchrun) {
  expect_errors_only({{"RANK", "1"},
                      {"WORLD_SIZE", "4"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "fe80::1%eth0"},
                      {"MASTER_PORT", "29500"}},
                     resolve);
}

TEST(Mutation, Mpi) {
  expect_errors_only({{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "2987130881"}},
                     resolve);
}

TEST(Mutation, Kubernetes) {
  expect_errors_only({{"JOB_COMPLETION_INDEX", "1"},
                      {"HOSTNAME", "train-1"},
                      {"COHORT_KUBERNETES_SERVICE", "ring"},
                      {"COHORT_KUBERNETES_PODS", "4"},
                      {"COHORT_KUBERNETES_PORT", "8470"}},
                     resolve);
}

TEST(Mutation, HostList) {
  expect_errors_only({{"LIST", "rack[1-2,7]n[001-003]-ib,m5 o[3-4]"}}, [](const Variables& v) {
    EXPECT_LE(expand_host_list(v.at("LIST"), "LIST", 1000).size(), 1000u);
  });
}

TEST(Mutation, TaskCounts) {
  expect_errors_only({{"COUNTS", "3(x2),2,11(x4)"}}, [](const Variables& v) {
    EXPECT_LE(expand_task_counts(v.at("COUNTS"), "COUNTS", 1000).size(), 1000u);
  });
}

TEST(Mutation, Addresses) {
  expect_errors_only({{"ADDRESS", "[2001:db8::17%eth0]:2222"}}, [](const Variables& v) {
    const Address address = Address::parse(v.at("ADDRESS"));
    EXPECT_EQ(Address::parse(address.text()), address);
  });
}

}  // namespace
}  // namespace cohort
