#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/temporary_folder.h"
#include "core/optim/optimizers.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/server.h"
#include "strategies/parameter_server/shard.h"
#include "tests/strategies/parameter_server/transport.h"
#include "tests/testing/error_of.h"
#include "tests/testing/lines.h"

namespace cohort::testing {

using std::chrono::milliseconds;

// Variables for tests to which their form does not matter.
inline const TensorSpec kOne{DType::kFloat32, {1}}, kFour{DType::kFloat32, {4}};

// Nothing of the environment that the test runs in.
inline std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

// A server with a port of its own, which outlives the server.
class TestServer {
 public:
  // What stop() leaves in its folder: what a server does that is killed, or one that ends.
  enum class Stopped { kKilled, kEnded };

  explicit TestServer(ParameterServerOptions options = {}, Stopped stopped = Stopped::kKilled)
      : options_(std::move(options)) {
    options_.job_id = "job";
    options_.snapshot_at_end = stopped == Stopped::kEnded;
    options_.notice = lines_.writer();
    start();
  }

  void start() { server_ = std::make_unique<ParameterServer>(address(), options_, no_environment); }
  void stop() { server_.reset(); }
  ParameterServer& operator*() { return *server_; }
  ParameterServer* operator->() { return server_.get(); }
  Address address() const { return Address::parse(port_.address()); }
  // The last line for people that has `part` in it, or "".
  std::string line(const std::string& part) const { return lines_.last(part); }
  int64_t lines(const std::string& part) const { return lines_.count(part); }

  std::unique_ptr<ParameterClient> client(const std::string& task = "worker:0",
                                          milliseconds timeout = std::chrono::seconds(20)) const {
    return std::make_unique<ParameterClient>(
        address(),
        ParameterClientOptions{
            .task = task, .job_id = "job", .timeout = timeout, .transport = transport()},
        no_environment);
  }

 private:
  launcher::ReservedPort port_;
  ParameterServerOptions options_;
  Lines lines_;
  std::unique_ptr<ParameterServer> server_;
};

// A whole variable as one shard.
inline ShardSpec whole_shard(const std::string& name, const TensorSpec& spec,
                             const optim::Optimizer& optimizer = optim::SGD(1.0)) {
  return {.name = name,
          .variable = name,
          .whole = spec,
          .rows = spec.shape.rank() == 0 ? 1 : spec.shape[0],
          .update = trace_update(optimizer.rule(), spec)};
}

// A table whose rows are made on first use.
inline ShardSpec lazy_table(int64_t rows, int64_t columns, const RowInitializer& initializer) {
  ShardSpec spec = whole_shard("table", {DType::kFloat32, {8, columns}}, optim::Adagrad(1.0));
  spec.whole.shape = spec.whole.shape.with_dim(0, rows);
  spec.rows = rows;
  spec.update.dense.clear();
  spec.lazy = initializer;
  return spec;
}

// One of rows of a megabyte.
inline ShardSpec wide_table(const std::string& name) {
  ShardSpec spec = lazy_table(1000, 1 << 18, {});
  spec.name = spec.variable = name;
  return spec;
}

// A table with these rows in use, in which all is this number.
inline parameter_server::ShardState state_with(const ShardSpec& spec,
                                               const std::vector<int64_t>& rows, float number) {
  parameter_server::ShardState state{.spec = spec, .version = 9};
  state.row_ids = rows;
  for (int part = 0; part < spec.num_parts(); ++part)
    state.parts.push_back(Tensor::full(
        DType::kFloat32, spec.whole.shape.with_dim(0, static_cast<int64_t>(rows.size())), number));
  return state;
}

inline Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

inline std::vector<float> values_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

// A shard's present value.
inline Tensor fetch(ParameterClient& client, const ShardSpec& spec, int part = 0) {
  Tensor target(spec.whole.dtype, spec.spec().shape);
  client.pull({.shard = spec.name, .target = target, .part = part});
  return target;
}

#define EXPECT_ERROR(expression, error_code, part)                                        \
  do {                                                                                    \
    const ::cohort::Error thrown = ::cohort::testing::error_of([&] { expression; });      \
    EXPECT_EQ(thrown.code(), error_code) << thrown.what();                                \
    EXPECT_NE(std::string(thrown.what()).find(part), std::string::npos) << thrown.what(); \
  } while (false)

}  // namespace cohort::testing
