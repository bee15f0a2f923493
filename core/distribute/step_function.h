#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/distribute/per_replica.h"
#include "core/runtime/function.h"

namespace cohort {

class Strategy;

// What a traced step sees of a batch: a symbolic value for each of its named tensors.
class BatchValues {
 public:
  BatchValues(std::vector<std::string> names, std::vector<Value> values);

  // kNotFound, listing the names there are, when there is no such name.
  const Value& operator[](std::string_view name) const;
  const Value& operator[](std::nullptr_t) const = delete;  // batch[0]
  bool contains(std::string_view name) const;
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<Value>& values() const { return values_; }
  // The rows that this replica sees (may be 0), and those that all replicas see together: a
  // replica's loss is its sum over rows divided by global_rows().
  int64_t rows() const;
  int64_t global_rows() const;

 private:
  std::vector<std::string> names_;
  std::vector<Value> values_;
};

namespace internal {

// The names of a batch parameter's tensors; empty for a parameter that is a Value.
using ParameterNames = std::vector<std::vector<std::string>>;

template <typename A>
concept Number = std::is_arithmetic_v<A>;
// data::Batch, which this folder does not know.
template <typename A>
concept NamedTensors = requires(const A& batch) {
  batch.fields();
};
template <typename A>
concept PerReplicaNumbers = Number<std::remove_cvref_t<decltype(std::declval<const A&>()[0])>> &&
    std::is_convertible_v<const A&,
                          PerReplica<std::remove_cvref_t<decltype(std::declval<const A&>()[0])>>>;
template <typename A>
concept PerReplicaNamedTensors = requires(const A& batches) {
  batches.size();
  batches[0].fields();
};
template <typename A>
inline constexpr bool is_batch = NamedTensors<A> || PerReplicaNamedTensors<A>;

// kInvalidArgument where a number is too large.
template <Number T>
int64_t as_int64(T value) {
  const auto number = static_cast<int64_t>(value);
  if (std::is_unsigned_v<T> && number < 0)
    invalid("the argument ", static_cast<uint64_t>(value), " does not fit int64");
  return number;
}

// Integers that do not fit int32 become int64; kInvalidArgument where they do not fit that.
template <Number T>
Tensor number(T value) {
  if constexpr (!std::is_integral_v<T> || std::is_same_v<T, bool>)
    return Tensor::scalar(value);
  else if constexpr (sizeof(T) < sizeof(int32_t) || std::is_same_v<T, int32_t>)
    return Tensor::scalar(static_cast<int32_t>(value));
  else
    return Tensor::scalar(as_int64(value));
}

// The arguments of one run, flattened to a list of tensors for each replica.
class StepArguments {
 public:
  explicit StepArguments(size_t replicas) : tensors(replicas) {}

  template <typename A>
  void add(const A& argument) {
    names.emplace_back();
    if constexpr (Number<A>) {
      add_same(number(argument));
    } else if constexpr (std::is_convertible_v<const A&, const Tensor&>) {
      add_same(argument);
    } else if constexpr (std::is_convertible_v<const A&, const PerReplica<Tensor>&>) {
      add_each(argument);
    } else if constexpr (PerReplicaNumbers<A>) {
      PerReplica<Tensor> parts(argument.size());
      for (size_t r = 0; r < argument.size(); ++r) parts[r] = number(argument[r]);
      add_each(parts);
    } else if constexpr (NamedTensors<A>) {
      for (const auto& field : argument.fields()) {
        add_same(field.tensor);
        names.back().push_back(field.name);
      }
    } else {
      static_assert(PerReplicaNamedTensors<A>,
                    "a step is run with tensors, numbers, batches, or a PerReplica of them");
      add_batches(argument);
    }
  }

  PerReplica<std::vector<Tensor>> tensors;
  std::vector<bool> same;  // by input: whether every replica is given the same tensor
  ParameterNames names;

 private:
  void add_same(const Tensor& tensor);
  void add_each(const PerReplica<Tensor>& parts);
  void check_replicas(size_t given) const;
  // kInvalidArgument unless the batch of `replica` has the names of the first.
  static void check_names(const std::vector<std::string>& first,
                          const std::vector<std::string>& other, size_t replica);

  template <typename Batches>
  void add_batches(const Batches& batches) {
    check_replicas(batches.size());
    std::vector<PerReplica<Tensor>> fields;
    for (size_t r = 0; r < batches.size(); ++r) {
      std::vector<std::string> found;
      for (const auto& field : batches[r].fields()) found.push_back(field.name);
      if (r == 0) names.back() = found;
      check_names(names.back(), found, r);
      fields.resize(found.size(), PerReplica<Tensor>(batches.size()));
      for (size_t f = 0; f < fields.size(); ++f) fields[f][r] = batches[r].fields()[f].tensor;
    }
    for (const auto& parts : fields) add_each(parts);
  }
};

// Hands the inputs of a traced function out to the step's parameters, in order.
class ParameterReader {
 public:
  ParameterReader(const std::vector<Value>& inputs, const ParameterNames& names)
      : input_(inputs.begin()), names_(names.begin()) {}

  template <typename Parameter>
  Parameter next() {
    const std::vector<std::string>& names = *names_++;
    if constexpr (std::is_same_v<Parameter, Value>) {
      return *input_++;
    } else {
      static_assert(std::is_same_v<Parameter, BatchValues>,
                    "a step's parameters are Value and const BatchValues&");
      const auto first = input_;
      input_ += static_cast<std::ptrdiff_t>(names.size());
      return BatchValues(names, {first, input_});
    }
  }

 private:
  std::vector<Value>::const_iterator input_;
  ParameterNames::const_iterator names_;
};

// A step without its types: one Function for each set of names that batches came with.
class StepState {
 public:
  using Body =
      std::function<std::vector<Value>(const std::vector<Value>& inputs, const ParameterNames&)>;
  StepState(Body body, std::string name, Precision precision)
      : body_(std::move(body)), name_(std::move(name)), precision_(precision) {}

  // Runs with what `arguments` makes, whose errors are those of all workers. One PerReplica for
  // each value that the body returns.
  std::vector<PerReplica<Tensor>> run(Strategy& strategy,
                                      const std::function<StepArguments()>& arguments);
  // The function for batches of these names; it stays as long as this.
  const Function& function(const ParameterNames& names);
  const std::string& name() const { return name_; }
  Precision precision() const { return precision_; }
  int trace_count() const;
  void continue_at(int64_t runs);

 private:
  // REQUIRES: mutex_ held.
  const Function& find(const ParameterNames& names);

  Body body_;
  std::string name_;
  const Precision precision_;
  mutable std::mutex mutex_;  // guards what follows
  int64_t runs_ = 0;
  std::map<ParameterNames, Function> functions_;
};

size_t local_replicas(const Strategy& strategy);

}  // namespace internal

// A step as Strategy::function makes it. A cheap handle; copies share traces.
template <typename Result, typename... Parameters>
class StepFunction {
 public:
  StepFunction(std::function<Result(Parameters...)> body, std::string name,
               Precision precision = Precision::kFloat32)
      : state_(std::make_shared<internal::StepState>(
            [body = internal::checked_body(std::move(body), name)](
                const std::vector<Value>& inputs, const internal::ParameterNames& names) {
              [[maybe_unused]] internal::ParameterReader reader(inputs, names);
              // Braces evaluate in order.
              std::tuple<std::remove_cvref_t<Parameters>...> values{
                  reader.template next<std::remove_cvref_t<Parameters>>()...};
              return apply(body, values);
            },
            std::move(name), precision)) {}

  // How many signatures have been traced so far.
  int trace_count() const { return state_->trace_count(); }
  // Counts the next run as if `runs` had been made before it: a step that is made anew, as after a
  // restart, continues with its random numbers there. Every worker makes the call. kInvalidArgument
  // for less than 0.
  void continue_at(int64_t runs) const { state_->continue_at(runs); }
  // For who runs it elsewhere.
  const std::shared_ptr<internal::StepState>& state() const { return state_; }

  // What Strategy::run calls.
  template <typename... Arguments>
  auto run(Strategy& strategy, const Arguments&... arguments) const {
    static_assert(sizeof...(Arguments) == sizeof...(Parameters),
                  "a step is run with one argument for each of its parameters");
    static_assert(
        ((internal::is_batch<Arguments> ==
          std::is_same_v<std::remove_cvref_t<Parameters>, BatchValues>)&&...),
        "a parameter that is const BatchValues& takes a batch, a Value a tensor or number");
    auto results = state_->run(strategy, [&] {
      internal::StepArguments flat(internal::local_replicas(strategy));
      (flat.add(arguments), ...);
      return flat;
    });
    if constexpr (std::is_same_v<Result, Value>) {
      return std::move(results[0]);
    } else if constexpr (!std::is_void_v<Result>) {
      return results;
    }
  }

 private:
  template <typename F, typename Values>
  static std::vector<Value> apply(const F& body, const Values& values) {
    if constexpr (std::is_void_v<Result>) {
      std::apply(body, values);
      return {};
    } else if constexpr (std::is_same_v<Result, Value>) {
      return {std::apply(body, values)};
    } else {
      static_assert(std::is_same_v<Result, std::vector<Value>>,
                    "a step returns Value, std::vector<Value> or nothing");
      return std::apply(body, values);
    }
  }

  std::shared_ptr<internal::StepState> state_;
};

template <typename Result, typename... Parameters>
StepFunction(std::function<Result(Parameters...)>, std::string, Precision)
    -> StepFunction<Result, Parameters...>;

}  // namespace cohort
