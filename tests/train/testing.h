#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cohort.h"

namespace cohort::testing {

// A fresh, empty folder for one test.
inline std::string make_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / str(test->test_suite_name(), "_", test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder.string();
}

// The names and contents of the files in a folder.
inline std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

// Points of the plane whose class (0 or 1) is the side of a line they are on.
inline data::Dataset points(int64_t rows, uint64_t seed = 7) {
  Tensor x(DType::kFloat32, {rows, 2}), label(DType::kInt32, {rows});
  RandomStream random(seed);
  for (int64_t i = 0; i < rows; ++i) {
    const double a = 2 * random.uniform() - 1, b = 2 * random.uniform() - 1;
    x.data<float>()[2 * i] = static_cast<float>(a);
    x.data<float>()[2 * i + 1] = static_cast<float>(b);
    label.data<int32_t>()[i] = a + 2 * b > 0;
  }
  return data::from_tensor_slices({{"x", x}, {"label", label}});
}

inline void compile(Model& model, double learning_rate = 0.1) {
  model.compile({.optimizer = optim::SGD(learning_rate, {.momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metrics::SparseCategoricalAccuracy("accuracy")}});
}

// A compiled classifier of points; the same weights each time it is made.
inline Model classifier(double learning_rate = 0.1) {
  set_global_seed(3);
  auto model = nn::Sequential({nn::Dense(8, {.activation = nn::tanh}), nn::Dense(2)});
  model.build({{DType::kFloat32, {1, 2}}});
  compile(model, learning_rate);
  return model;
}

// One whose checkpoints have some 80 KiB.
inline Model wide_classifier() {
  set_global_seed(3);
  auto model = nn::Sequential({nn::Dense(2048, {.activation = nn::tanh}), nn::Dense(2)});
  model.build({{DType::kFloat32, {1, 2}}});
  compile(model, 1e-4);
  return model;
}

// Trains for some epochs of one step.
inline History fit(Model model, int64_t epochs, std::vector<CallbackPtr> callbacks) {
  return model.fit(
      points(8).batch(8),
      {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
}

// The bytes of all variables, the optimizer's too.
inline std::string bits(const Model& model) {
  Variables all = model.variables();
  for (const auto& variable : model.optimizer().variables()) all.push_back(variable);
  std::string out;
  for (const auto& variable : all) {
    const Tensor value = variable->value();
    out.append(static_cast<const char*>(value.raw()), value.bytes());
  }
  return out;
}

// The message of the cohort::Error that `f` throws, which has to have this code.
inline std::string error_of(const std::function<void()>& f, Code code = Code::kInvalidArgument) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  return "no error";
}

// A callback made of lambdas.
struct Hooks : Callback {
  std::function<void(Training&)> train_begin, train_end, epoch_begin, batch_begin, batch_end,
      validation_begin, validation_end;
  std::function<void(Training&, Logs&)> epoch_end;

  void on_train_begin(Training& t) override {
    if (train_begin) train_begin(t);
  }
  void on_train_end(Training& t) override {
    if (train_end) train_end(t);
  }
  void on_epoch_begin(Training& t) override {
    if (epoch_begin) epoch_begin(t);
  }
  void on_epoch_end(Training& t, Logs& logs) override {
    if (epoch_end) epoch_end(t, logs);
  }
  void on_validation_begin(Training& t) override {
    if (validation_begin) validation_begin(t);
  }
  void on_validation_end(Training& t) override {
    if (validation_end) validation_end(t);
  }
  void on_batch_begin(Training& t) override {
    if (batch_begin) batch_begin(t);
  }
  void on_batch_end(Training& t) override {
    if (batch_end) batch_end(t);
  }
};

// Ends training after so many steps in all as if the process had died.
inline CallbackPtr die_after(int64_t step) {
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [step](Training& training) {
    if (training.total_steps() == step) fail(Code::kAborted, "the power is gone");
  };
  return hooks;
}

// Puts `values` of successive epochs where a callback looks for the result `name`.
inline CallbackPtr script(const std::string& name, std::vector<double> values) {
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [=](Training& training, Logs& logs) {
    logs[name] = values.at(training.epoch());
  };
  return hooks;
}

}  // namespace cohort::testing
