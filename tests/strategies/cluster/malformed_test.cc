// Configurations with a mistake, and the parts of its message that a user needs: where, what was
// found, what is allowed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/resolve_cluster.h"
#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::refusal;
using cohort::testing::Variables;
using ::testing::HasSubstr;
using ::testing::Not;

struct Malformed {
  Variables variables;
  std::vector<std::string> parts;
};

// A TF_CONFIG with a mistake.
Malformed tf(const std::string& text, std::vector<std::string> parts) {
  return {{{"TF_CONFIG", text}}, std::move(parts)};
}

// The same with two workers and two parameter servers, and something else.
Malformed beside_cluster(const std::string& rest, std::vector<std::string> parts) {
  return tf(R"({"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1", "d:1"]}, )" + rest + "}",
            std::move(parts));
}

// A sound environment with some variables replaced; "-" takes a variable away.
Malformed changed(Variables sound, const Variables& changes, std::vector<std::string> parts) {
  for (const auto& [name, value] : changes) {
    if (value == "-") {
      sound.erase(name);
    } else {
      sound[name] = value;
    }
  }
  return {std::move(sound), std::move(parts)};
}

Malformed slurm(const Variables& changes, std::vector<std::string> parts) {
  return changed({{"SLURM_PROCID", "1"},
                  {"SLURM_STEP_NUM_TASKS", "4"},
                  {"SLURM_STEP_NODELIST", "n[1-2]"},
                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                  {"SLURM_JOB_ID", "77"},
                  {"SLURM_STEP_ID", "0"}},
                 changes, std::move(parts));
}

Malformed torchrun(const Variables& changes, std::vector<std::string> parts) {
  return changed({{"RANK", "1"},
                  {"WORLD_SIZE", "4"},
                  {"LOCAL_RANK", "1"},
                  {"LOCAL_WORLD_SIZE", "2"},
                  {"MASTER_ADDR", "a"},
                  {"MASTER_PORT", "29500"}},
                 changes, std::move(parts));
}

Malformed mpi(const Variables& changes, std::vector<std::string> parts) {
  return changed({{"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "4"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                 changes, std::move(parts));
}

Malformed kubernetes(const Variables& changes, std::vector<std::string> parts) {
  return changed({{"JOB_COMPLETION_INDEX", "1"},
                  {"HOSTNAME", "train-1"},
                  {"COHORT_KUBERNETES_SERVICE", "ring"},
                  {"COHORT_KUBERNETES_PODS", "4"}},
                 changes, std::move(parts));
}

void expect_refused(const std::vector<Malformed>& table) {
  for (const Malformed& row : table) {
    const std::string message = refusal([&] { resolve_cluster(environment(row.variables)); });
    std::string shown;
    for (const auto& [name, value] : row.variables)
      shown += name + "=" + value.substr(0, 200) + " ";
    // Every message has the same four things, and fits on a screen.
    EXPECT_THAT(message, HasSubstr(": found ")) << shown;
    EXPECT_THAT(message, HasSubstr("; expected ")) << shown;
    EXPECT_THAT(message, HasSubstr(", as in ")) << shown;
    EXPECT_LT(message.size(), 800u) << shown;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << shown;
    for (const std::string& part : row.parts) EXPECT_THAT(message, HasSubstr(part)) << shown;
  }
}

TEST(Malformed, NoJson) {
  expect_refused({
      tf("", {"TF_CONFIG", "line 1, column 1"}),
      tf(" ", {"TF_CONFIG", "line 1, column 2"}),
      tf("{", {"TF_CONFIG", "line 1, column 2"}),
      tf(R"({"cluster": {"worker": ["a:1",]}})", {"TF_CONFIG", "line 1, column 31"}),
      tf("{\"cluster\":\n {\"worker\": [\"a:1\"],}}", {"TF_CONFIG", "line 2, column 21"}),
      tf(R"({'cluster': {}})", {"TF_CONFIG", "line 1, column 2"}),
      tf(R"({"cluster": {}} x)", {"TF_CONFIG", "line 1, column 17"}),
      tf("{\"cluster\": {\"worker\": [\"\xff:1\"]}}",
         {"TF_CONFIG", "line 1, column 26", R"(last read: '"\xff')"}),
      tf(R"({"task": {"index": 1e999}})", {"TF_CONFIG.task.index: found 1e999;"}),
      tf(R"({"task": {"index": -1)" + std::string(5000, '0') + "}}",
         {"TF_CONFIG.task.index: found -1000", "000...;"}),
      tf("1e999", {"TF_CONFIG: found 1e999;"}),
      tf("[]", {"TF_CONFIG", "a list of 0", "an object"}),
      tf("null", {"TF_CONFIG", "null", "an object"}),
      tf("\"worker\"", {"TF_CONFIG", "\"worker\"", "an object"}),
      tf(std::string(10 << 20, ' ') + "{}", {"TF_CONFIG", "10485762 bytes", "1048576"}),
      tf(std::string(1 << 20, 'x'), {"TF_CONFIG", "line 1, column 1"}),
      tf(R"({"cluster": )" + std::string(100'000, '['), {"TF_CONFIG.cluster", "8 levels"}),
      tf(
          [] {
            std::string text;
            for (int i = 0; i < 50'000; ++i) text += R"({"cluster":)";
            return text;
          }(),
          {"TF_CONFIG.cluster.cluster", "8 levels"}),
      tf(
          [] {
            std::string text = R"({"cluster": {"0": {})";
            for (int i = 1; i < 60'000; ++i) text += str(",\"", i, "\":{}");
            return text + "}}";
          }(),
          {"TF_CONFIG.cluster.0", "chief, worker, ps or evaluator"}),
      tf(R"({"cluster": {}, "cluster": {}})", {"TF_CONFIG.cluster", "twice"}),
      tf(R"({"cluster": {"worker": ["a:1"], "worker": ["b:1"]}})",
         {"TF_CONFIG.cluster.worker", "twice"}),
      tf(R"({"cluster": {"worker": {"0": "a:1", "0": "b:1"}}})",
         {"TF_CONFIG.cluster.worker.0", "twice"}),
      tf(R"({"task": {"type": "worker", "index": 0, "index": 1}})",
         {"TF_CONFIG.task.index", "twice"}),
  });
}

TEST(Malformed, Cluster) {
  expect_refused({
      tf(R"({"cluster": []})", {"TF_CONFIG.cluster", "a list of 0", "an object"}),
      tf(R"({"cluster": {"worker": [], "ps": []}, "task": {"type": "worker", "index": 1}})",
         {"TF_CONFIG.cluster", "jobs without a task"}),
      tf(R"({"cluster": null})", {"TF_CONFIG.cluster", "null", "an object"}),
      tf(R"({"cluster": "a:1"})", {"TF_CONFIG.cluster", "\"a:1\"", "an object"}),
      tf(R"({"cluster": {"worker": "a:1"}})", {"TF_CONFIG.cluster.worker", "\"a:1\"", "a list"}),
      tf(R"({"cluster": {"worker": 3}})", {"TF_CONFIG.cluster.worker", "3", "a list"}),
      tf(R"({"cluster": {"worker": null}})", {"TF_CONFIG.cluster.worker", "null", "a list"}),
      tf(R"({"cluster": {"worker": ["a:1", 7]}})", {"TF_CONFIG.cluster.worker[1]", "7", "text"}),
      tf(R"({"cluster": {"worker": [["a:1"]]}})", {"TF_CONFIG.cluster.worker[0]", "a list of 1"}),
      tf(R"({"cluster": {"workers": ["a:1"]}})",
         {"TF_CONFIG.cluster.workers", "\"workers\"", "chief, worker, ps or evaluator"}),
      tf(R"({"cluster": {"Worker": ["a:1"]}})", {"TF_CONFIG.cluster.Worker", "chief, worker"}),
      tf(R"({"cluster": {"": ["a:1"]}})", {R"(TF_CONFIG.cluster[""])", "chief, worker"}),
      tf(R"({"cluster": {"a\nb": ["a:1"]}})", {R"(TF_CONFIG.cluster["a\x0ab"])", "chief, worker"}),
      tf(R"({"cluster": {"worker": {"one": "a:1"}}})",
         {"TF_CONFIG.cluster.worker.one", "\"one\"", "an integer from 0"}),
      tf(R"({"cluster": {"worker": {"-1": "a:1"}}})", {"TF_CONFIG.cluster.worker.-1", "\"-1\""}),
      tf(R"({"cluster": {"worker": {"01": "a:1"}}})",
         {"TF_CONFIG.cluster.worker.01", "\"01\"", "\"1\""}),
      tf(R"({"cluster": {"worker": {"1000000": "a:1"}}})",
         {"TF_CONFIG.cluster.worker.1000000", "to 999999"}),
      tf(R"({"cluster": {"worker": ["a:1", "b:1", "A:1"]}})",
         {"TF_CONFIG.cluster.worker[2]", "TF_CONFIG.cluster.worker[0]", "a:1"}),
      tf(R"({"cluster": {"worker": ["a:1", "b:1", "a.:1"]}})",
         {"TF_CONFIG.cluster.worker[2]: found a.:1,", "TF_CONFIG.cluster.worker[0]"}),
      tf(R"({"cluster": {"worker": ["a:1"], "ps": ["a:1"]}})",
         {"TF_CONFIG.cluster.worker[0]", "TF_CONFIG.cluster.ps[0]", "a:1"}),
      tf(R"({"cluster": {"chief": ["a:1", "b:1"]}})",
         {"TF_CONFIG.cluster.chief[1]", "chief 1", "at most one chief"}),
      tf(R"({"cluster": {"chief": {"1": "a:1"}}})", {"TF_CONFIG.cluster.chief.1", "number 0"}),
      tf(R"({"cluster": {"evaluator": ["a:1", "b:1"]}})",
         {"TF_CONFIG.cluster.evaluator[1]", "at most one evaluator"}),
      tf(R"({"sparseCluster": {"worker": {"one": "a:1"}}})",
         {"TF_CONFIG.sparseCluster.worker.one", "\"one\""}),
      tf(R"({"sparseCluster": {"worker": {}, "ps": []}, "task": {"type": "chief", "index": 0}})",
         {"TF_CONFIG.sparseCluster", "jobs without a task"}),
      tf(R"({"cluster": {"worker": ["a:1"]}, "sparseCluster": {"worker": ["a:1"]}})",
         {"TF_CONFIG.sparseCluster", "\"cluster\" as well", "one of them"}),
      tf(R"({"clutser": {"worker": ["a:1"]}})", {"TF_CONFIG.clutser", "unknown key", "cluster"}),
  });
}

TEST(Malformed, Addresses) {
  const auto address = [](const std::string& text, std::vector<std::string> parts) {
    parts.push_back("TF_CONFIG.cluster.worker[1]");
    return tf(str(R"({"cluster": {"worker": ["a:1", ")", text, "\"]}}"), std::move(parts));
  };
  expect_refused({
      address("", {"no port", "host:port"}),
      address("b", {"\"b\"", "no port", "host:port"}),
      address("b:", {"\"b:\"", "1 to 65535"}),
      address("b:0", {"\"b:0\"", "\"0\"", "1 to 65535"}),
      address("b:70000", {"\"b:70000\"", "\"70000\"", "1 to 65535"}),
      address("b:-5", {"\"b:-5\"", "1 to 65535"}),
      address("b:http", {"\"b:http\"", "1 to 65535"}),
      address("::1:80", {"\"::1:80\"", "brackets"}),
      address("[::1]", {"\"[::1]\"", "no port"}),
      address("[::g]:80", {"\"[::g]:80\"", "IPv6"}),
      address("[b]:80", {"\"[b]:80\"", "IPv6"}),
      address("http://b:80", {"\"http://b:80\"", "several colons"}),
      address("b c:80", {"\"b c:80\"", "host name"}),
      address("999.0.0.1:80", {"\"999.0.0.1:80\"", "host name"}),
      address("0.0.0.0:80", {"\"0.0.0.0:80\"", "reach"}),
      address("[::]:80", {"\"[::]:80\"", "reach"}),
      address("224.0.0.1:80", {"\"224.0.0.1:80\"", "multicast", "reach"}),
      address(std::string(5000, 'x') + ":80", {"xxx...", "host name"}),
  });
}

TEST(Malformed, Task) {
  expect_refused({
      beside_cluster(R"("task": [])", {"TF_CONFIG.task", "a list of 0", "an object"}),
      beside_cluster(R"("task": null)", {"TF_CONFIG.task", "null", "an object"}),
      beside_cluster(R"("task": "worker")", {"TF_CONFIG.task", "\"worker\"", "an object"}),
      beside_cluster(R"("task": {"type": "worker"})", {"TF_CONFIG.task", "no \"index\""}),
      beside_cluster(R"("task": {"index": 1})", {"TF_CONFIG.task", "no \"type\""}),
      beside_cluster(R"("task": {"type": null, "index": 0})", {"TF_CONFIG.task.type", "null"}),
      beside_cluster(R"("task": {"type": ["ps"], "index": 0})", {"TF_CONFIG.task.type", "a list"}),
      beside_cluster(R"("task": {"type": 1, "index": 0})",
                     {"TF_CONFIG.task.type", "\"1\"", "chief, worker, ps or evaluator"}),
      beside_cluster(R"("task": {"type": "Worker", "index": 0})",
                     {"TF_CONFIG.task.type", "\"Worker\"", "chief, worker, ps or evaluator"}),
      beside_cluster(R"("task": {"type": "chief", "index": 0})",
                     {"TF_CONFIG.task.type", "\"chief\"", "ps, worker"}),
      beside_cluster(R"("task": {"type": "worker", "index": 2})",
                     {"TF_CONFIG.task.index", "found 2", "0 to 1"}),
      beside_cluster(R"("task": {"type": "ps", "index": 17})",
                     {"TF_CONFIG.task.index", "found 17", "0 to 1"}),
      beside_cluster(R"("task": {"type": "evaluator", "index": 5})",
                     {"TF_CONFIG.task.index", "found 5", "at most one evaluator"}),
      beside_cluster(R"("task": {"type": "worker", "index": -1})",
                     {"TF_CONFIG.task.index", "found -1;", "an integer from 0"}),
      beside_cluster(R"("task": {"type": "worker", "index": "-1"})",
                     {"TF_CONFIG.task.index", "found \"-1\";", "an integer from 0"}),
      beside_cluster(R"("task": {"type": "worker", "index": 1000000})",
                     {"TF_CONFIG.task.index", "found 1000000;", "to 999999"}),
      beside_cluster(R"("task": {"type": "worker", "index": "x"})",
                     {"TF_CONFIG.task.index", "\"x\"", "an integer from 0"}),
      beside_cluster(R"("task": {"type": "worker", "index": ""})",
                     {"TF_CONFIG.task.index", "\"\""}),
      beside_cluster(R"("task": {"type": "worker", "index": 1.5})",
                     {"TF_CONFIG.task.index", "1.5"}),
      beside_cluster(R"("task": {"type": "worker", "index": true})",
                     {"TF_CONFIG.task.index", "true"}),
      beside_cluster(R"("task": {"type": "worker", "index": null})",
                     {"TF_CONFIG.task.index", "null"}),
      beside_cluster(R"("task": {"type": "worker", "index": 18446744073709551615})",
                     {"TF_CONFIG.task.index", "18446744073709551615"}),
      beside_cluster(R"("rpc_layer": 1)", {"TF_CONFIG.rpc_layer", "found 1", "a text"}),
      beside_cluster(R"("environment": {})", {"TF_CONFIG.environment", "an object", "a text"}),
      beside_cluster(R"("session_master": null)", {"TF_CONFIG.session_master", "null", "a text"}),
  });
}

TEST(Malformed, Slurm) {
  expect_refused({
      slurm({{"SLURM_PROCID", "-"}}, {"SLURM_PROCID", "no such variable"}),
      slurm({{"SLURM_PROCID", ""}}, {"SLURM_PROCID", "empty"}),
      slurm({{"SLURM_PROCID", "4"}}, {"SLURM_PROCID", "\"4\"", "from 0 to 3"}),
      slurm({{"SLURM_PROCID", "one"}}, {"SLURM_PROCID", "\"one\""}),
      slurm({{"SLURM_STEP_NUM_TASKS", "0"}}, {"SLURM_STEP_NUM_TASKS", "\"0\"", "from 1"}),
      slurm({{"SLURM_STEP_NUM_TASKS", "9999999999"}}, {"SLURM_STEP_NUM_TASKS", "to 1000000"}),
      slurm({{"SLURM_STEP_NUM_TASKS", "5"}},
            {"SLURM_STEP_TASKS_PER_NODE=\"2(x2)\"", "4 tasks", "the 5"}),
      slurm({{"SLURM_STEP_NODELIST", "-"}}, {"SLURM_STEP_NODELIST", "no such variable"}),
      slurm({{"SLURM_STEP_NODELIST", "n[1-"}}, {"SLURM_STEP_NODELIST", "column 5", "the end"}),
      slurm({{"SLURM_STEP_NODELIST", "n[2-1]"}}, {"SLURM_STEP_NODELIST", "column 3", "ascending"}),
      slurm({{"SLURM_STEP_NODELIST", "n[1-3]"}}, {"SLURM_STEP_TASKS_PER_NODE", "2 hosts", "the 3"}),
      slurm({{"SLURM_STEP_NODELIST", "n[1-5]"}}, {"SLURM_STEP_NODELIST", "more than 4 hosts"}),
      slurm({{"SLURM_STEP_NODELIST", "n[1-5]"}, {"SLURM_STEP_TASKS_PER_NODE", "0,1(x4)"}},
            {"SLURM_STEP_TASKS_PER_NODE", "column 1", "0 tasks"}),
      slurm({{"SLURM_STEP_NODELIST", "n1,n&2"}},
            {"SLURM_STEP_NODELIST=\"n1,n&2\" column 4", "\"n&2\"", "host name"}),
      slurm({{"SLURM_STEP_NODELIST", "n\xc3\xb6[1-2]"}},
            {R"(SLURM_STEP_NODELIST="n\xc3\xb6[1-2]" column 1)", R"(found "n\xc3\xb61";)",
             "host name"}),
      slurm({{"SLURM_STEP_TASKS_PER_NODE", "-"}}, {"SLURM_STEP_TASKS_PER_NODE", "no such"}),
      slurm({{"SLURM_STEP_TASKS_PER_NODE", "2x2"}},
            {"SLURM_STEP_TASKS_PER_NODE", "column 2", "\"x\""}),
      slurm({{"SLURM_DISTRIBUTION", "arbitrary"}}, {"SLURM_DISTRIBUTION", "arbitrary", "block"}),
      slurm({{"SLURM_DISTRIBUTION", "plane=0"}}, {"SLURM_DISTRIBUTION", "\"0\""}),
      slurm({{"SLURM_NODEID", "1"}}, {"SLURM_NODEID", "found 1", "expected 0"}),
      slurm({{"SLURM_JOB_ID", "x"}}, {"SLURM_JOB_ID", "\"x\""}),
      slurm({{"SLURM_STEP_ID", "-1"}}, {"SLURM_STEP_ID", "\"-1\""}),
      slurm({{"SLURM_GPUS_ON_NODE", "many"}}, {"SLURM_GPUS_ON_NODE", "\"many\""}),
  });
}

TEST(Malformed, Ranks) {
  expect_refused({
      torchrun({{"RANK", "4"}}, {"RANK", "\"4\"", "from 0 to 3"}),
      torchrun({{"RANK", "-1"}}, {"RANK", "\"-1\""}),
      torchrun({{"RANK", ""}}, {"RANK", "empty"}),
      torchrun({{"WORLD_SIZE", "0"}}, {"WORLD_SIZE", "\"0\"", "from 1"}),
      torchrun({{"WORLD_SIZE", "4 "}}, {"WORLD_SIZE", "\"4 \""}),
      torchrun({{"LOCAL_RANK", "2"}}, {"LOCAL_RANK", "\"2\"", "from 0 to 1"}),
      torchrun({{"LOCAL_WORLD_SIZE", "5"}}, {"LOCAL_WORLD_SIZE", "\"5\"", "from 1 to 4"}),
      torchrun({{"MASTER_ADDR", "-"}}, {"MASTER_ADDR", "no such variable"}),
      torchrun({{"MASTER_ADDR", "a:1"}}, {"MASTER_ADDR: found \"a:1\", which has a port;",
                                          "without a port", "as in \"worker0"}),
      torchrun({{"MASTER_ADDR", " "}}, {"MASTER_ADDR: found \" \";", "without a port"}),
      torchrun({{"MASTER_ADDR", "::g"}}, {"MASTER_ADDR: found \"::g\", which is no IPv6 address;"}),
      torchrun({{"MASTER_ADDR", "fe80::1"}}, {"MASTER_ADDR", "zone", "as in fe80::1%eth0,"}),
      torchrun({{"MASTER_ADDR", "224.0.0.1"}}, {"MASTER_ADDR", "multicast"}),
      torchrun({{"MASTER_ADDR", "0.0.0.0"}}, {"MASTER_ADDR", "\"0.0.0.0\"", "reach"}),
      torchrun({{"MASTER_PORT", "-"}}, {"MASTER_PORT", "no such variable"}),
      torchrun({{"MASTER_PORT", "65536"}}, {"MASTER_PORT", "\"65536\"", "to 65535"}),
      torchrun({{"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
               {"MASTER_PORT", "\"65535\"", "to 65534"}),
      mpi({{"OMPI_COMM_WORLD_RANK", "4"}}, {"OMPI_COMM_WORLD_RANK", "\"4\"", "from 0 to 3"}),
      mpi({{"OMPI_COMM_WORLD_SIZE", "-"}}, {"OMPI_COMM_WORLD_SIZE", "no such variable"}),
      mpi({{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}, {"OMPI_COMM_WORLD_LOCAL_RANK", "from 0 to 1"}),
      mpi({{"MASTER_ADDR", "node1"}}, {"MASTER_PORT", "no such variable"}),
      {{{"PMI_RANK", "0"}}, {"PMI_SIZE", "no such variable"}},
      {{{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}, {"PMI_RANK", "\"2\"", "from 0 to 1"}},
      {{{"PMIX_RANK", "0"}}, {"WORLD_SIZE", "no such variable"}},
  });
}

TEST(Malformed, Kubernetes) {
  expect_refused({
      kubernetes({{"JOB_COMPLETION_INDEX", "4"}}, {"JOB_COMPLETION_INDEX", "\"4\"", "from 0 to 3"}),
      kubernetes({{"JOB_COMPLETION_INDEX", "x"}}, {"JOB_COMPLETION_INDEX", "\"x\""}),
      kubernetes({{"HOSTNAME", "-"}}, {"HOSTNAME", "no such variable"}),
      kubernetes({{"HOSTNAME", "train-2"}}, {"HOSTNAME", "\"train-2\"", "-1"}),
      kubernetes({{"HOSTNAME", "tr&in-1"}}, {"HOSTNAME", "tr&in-0.ring", "host name"}),
      kubernetes({{"COHORT_KUBERNETES_SERVICE", "-"}}, {"COHORT_KUBERNETES_SERVICE", "no such"}),
      kubernetes({{"COHORT_KUBERNETES_SERVICE", "::1"}},
                 {"COHORT_KUBERNETES_SERVICE: found \"train-0.::1\"", "without a port"}),
      kubernetes({{"COHORT_KUBERNETES_PODS", "-"}}, {"COHORT_KUBERNETES_PODS", "no such variable"}),
      kubernetes({{"COHORT_KUBERNETES_PODS", "0"}}, {"COHORT_KUBERNETES_PODS", "\"0\"", "from 1"}),
      kubernetes({{"COHORT_KUBERNETES_PORT", "0"}}, {"COHORT_KUBERNETES_PORT", "\"0\"", "from 1"}),
  });
}

}  // namespace
}  // namespace cohort
