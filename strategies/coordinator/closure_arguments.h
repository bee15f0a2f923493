#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/distribute/step_function.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/per_worker.h"
#include "strategies/coordinator/remote_value.h"

namespace cohort::coordinator {

// The arguments of a function that is scheduled.
class ClosureArguments {
 public:
  template <typename A>
  void add(const A& argument) {
    static_assert(!std::is_same_v<A, RemoteValue>,
                  "a RemoteValue cannot be an argument: fetch it, or compute both in one function");
    if constexpr (internal::Number<A>) {
      add_tensor(internal::number(argument));
    } else if constexpr (std::is_convertible_v<const A&, const Tensor&>) {
      add_tensor(argument);
    } else if constexpr (std::is_same_v<A, PerWorkerValues>) {
      add_resource(argument.handle(), false);
    } else if constexpr (std::is_same_v<A, PerWorkerIterator>) {
      add_resource(argument.handle(), true);
    } else {
      static_assert(internal::NamedTensors<A>,
                    "a function is scheduled with tensors, numbers, batches, PerWorkerValues and "
                    "PerWorkerIterators");
      Argument& added = all.emplace_back();
      added.parameter.is_batch = true;
      for (const auto& field : argument.fields()) {
        added.parameter.names.push_back(field.name);
        added.tensors.push_back(field.tensor);
      }
    }
  }

  template <typename A>
  static constexpr bool is_batch = internal::is_batch<A> || std::is_same_v<A, PerWorkerIterator>;

  std::vector<Argument> all;
  std::vector<std::shared_ptr<const ResourceHandle>> resources;  // that they name

 private:
  void add_tensor(const Tensor& tensor);
  void add_resource(const std::shared_ptr<const ResourceHandle>& handle, bool is_batch);
};

}  // namespace cohort::coordinator
