#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/data/dataset.h"
#include "core/device/device.h"
#include "core/distribute/per_replica.h"
#include "core/distribute/remote_updates.h"
#include "core/runtime/variable.h"
#include "strategies/coordinator/messages.h"

namespace cohort::coordinator {

// What a coordinator has a worker keep: values, variables, and passes over datasets. Not
// synchronised.
class WorkerResources {
 public:
  // What a closure is given; the error if it could not be made.
  using What = std::variant<data::Iterator, PerReplica<Tensor>, std::shared_ptr<Variable>, Error>;
  struct Kept {
    std::string name;
    What what;
    KeptApart kept = KeptApart::kState;  // of a variable
  };

  // Both stay longer; a replica is on each of `devices`.
  WorkerResources(const Attach& attach, const std::vector<Device>& devices)
      : attach_(attach), devices_(devices) {}

  // These are not kept yet. kInvalidArgument, kNotFound, and what a program's dataset throws.
  What make(const CreateVariable& variable) const;
  What make(const CreateIterator& iterator);
  // In place of what has this number.
  void keep(uint64_t id, Kept kept);
  // It is kept no longer; nothing where there is none.
  std::optional<Kept> take(uint64_t id);
  void clear() { kept_.clear(); }
  size_t size() const { return kept_.size(); }

  // kNotFound where there is none; the error of what could not be made.
  Kept& get(uint64_t id);
  // The next batch of a pass. end_of_data() after the last.
  data::Element next_of(Kept& iterator) const;
  // The variable that has a name; null where there is none. Throws why it could not be made.
  std::shared_ptr<Variable> variable(const std::string& name) const;
  // Of what a function uses, the variables that are KeptApart::kCount.
  std::map<uint64_t, std::shared_ptr<Variable>> counts_in(
      const std::set<const Resource*>& used) const;
  // Sums and counts are 0 again, unless this throws.
  void forget_sums();

 private:
  // That of this name, which is made for its first pass: what it caches is for all of them.
  const data::Dataset& dataset(const std::string& name);

  const Attach& attach_;
  const std::vector<Device>& devices_;
  std::map<uint64_t, Kept> kept_;
  std::map<std::string, data::Dataset> datasets_;
};

}  // namespace cohort::coordinator
