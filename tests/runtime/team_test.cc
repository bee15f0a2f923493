#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <omp.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/runtime/function.h"
#include "core/runtime/plan.h"

// The threads that plans compute with, whatever OpenMP is set to.
namespace cohort {
namespace {

Tensor numbers(Shape shape, double phase) {
  Tensor t(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) + phase));
  return t;
}

// Large enough for several threads.
const std::vector<Tensor>& factors() {
  static const std::vector<Tensor> all = {numbers({256, 512}, 1), numbers({512, 384}, 2)};
  return all;
}

Function product() {
  return function([](Value a, Value b) { return ops::matmul(a, b); }, "product");
}

Plan product_plan(int threads) {
  return Plan(product().trace({factors()[0].spec(), factors()[1].spec()}), {.threads = threads});
}

Tensor product_by(int threads) { return product_plan(threads).run(factors(), {})[0]; }

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i)
    largest = std::max(
        largest, std::abs(static_cast<double>(a.data<float>()[i]) - double{b.data<float>()[i]}));
  return largest;
}

constexpr double kRounding = 1e-3;

// On a thread that has OpenMP's settings as the process has started with them.
void on_new_thread(const std::function<void()>& body) { std::thread(body).join(); }

TEST(Team, ComputesAllWhereOpenMPWouldChooseItsSize) {
  on_new_thread([] {
    omp_set_dynamic(1);
    EXPECT_LT(largest_difference(product_by(omp_get_num_procs() + 1), product_by(1)), kRounding);
  });
}

TEST(Team, ComputesAllWhereOpenMPHasNone) {
  on_new_thread([] {
    omp_set_max_active_levels(0);
    EXPECT_LT(largest_difference(product_by(2), product_by(1)), kRounding);
  });
}

TEST(Team, LeavesTheProgramItsOwnSettings) {
  on_new_thread([] {
    omp_set_num_threads(3);
    omp_set_dynamic(1);
    product_by(2);
    EXPECT_EQ(omp_get_max_threads(), 3);
    EXPECT_EQ(omp_get_dynamic(), 1);
  });
}

TEST(Team, InAParallelRegionOfTheProgramIsItsThreadAlone) {
  const Function f = product();
  const Tensor outside = f(factors())[0];
  Tensor inside[2];
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) inside[i] = f(factors())[0];
  for (const Tensor& one : inside) EXPECT_LT(largest_difference(one, outside), kRounding);
}

TEST(Team, ThatAParallelRegionLacksIsAnErrorOfThePlanThatWasMadeForIt) {
  if (largest_team() < 2) GTEST_SKIP() << "there are no parallel regions";
  Plan plan = product_plan(2);
  Code codes[2] = {};
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) {
    try {
      plan.run(factors(), {});  // computes nothing, so that both may be in it
    } catch (const Error& error) {
      codes[i] = error.code();
    }
  }
  for (const Code code : codes) EXPECT_EQ(code, Code::kFailedPrecondition);
  EXPECT_LT(largest_difference(plan.run(factors(), {})[0], product_by(1)), kRounding);
}

TEST(Team, IsThatOfTheOptionsInEachCallOfAFunction) {
  const Function f = function([](Value x) { return ops::all_reduce({x})[0]; });
  const std::vector<Tensor> inputs = {Tensor::full(DType::kFloat32, {4}, 0.5)};
  int team = 0;
  const auto communicator = std::move(make_in_process_communicators(1).front());
  communicator->set_observer([&](const CommunicationEvent&) { team = num_threads(); });
  for (const int threads : {2, 1, 2}) {
    f.run(inputs, {.threads = threads}, {.communicator = communicator.get()});
    EXPECT_EQ(team, std::min(threads, largest_team()));
  }
}

}  // namespace
}  // namespace cohort
