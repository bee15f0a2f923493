#include "core/runtime/merged_variable.h"

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

class MergedVariable final : public Variable {
 public:
  explicit MergedVariable(std::shared_ptr<Variable> of)
      : Variable({.name = of->name(), .spec = of->spec(), .initial_value = {}}),
        of_(std::move(of)),
        storage_(Tensor::zeros(spec().dtype, spec().shape)) {}

  const Variable* of() const { return of_.get(); }

  Tensor storage(int) override { return storage_; }
  // Writes nothing that has not changed, which another plan may be reading.
  void begin_read_outside() override {
    const std::lock_guard lock(reading_);
    const Tensor value = load_value();
    if (value.bytes() > 0 && std::memcmp(storage_.raw(), value.raw(), value.bytes()) != 0)
      storage_.assign(value);
  }
  int num_replicas() const override { return 1; }
  std::vector<Device> devices() const override { return {Device{}}; }

 protected:
  Tensor load_value() const override { return of_->merged_value(); }

 private:
  const std::shared_ptr<Variable> of_;
  Tensor storage_;
  std::mutex reading_;
};

}  // namespace

std::shared_ptr<Variable> make_merged_variable(std::shared_ptr<Variable> of) {
  return std::make_shared<MergedVariable>(std::move(of));
}

const Resource* merged_of(const Resource* resource) {
  const auto* merged = dynamic_cast<const MergedVariable*>(resource);
  return merged == nullptr ? resource : merged->of();
}

GraphFunction read_merged_values(const GraphFunction& function) {
  std::set<const Resource*> written;
  for (const auto& node : function.graph->nodes())
    if (is_write(*node)) written.insert(node->resource());
  std::map<const Resource*, std::shared_ptr<Variable>> merged;
  Rewriter rewrite(function);
  for (const auto& node : function.graph->nodes()) {
    auto* variable = is_read(*node) ? dynamic_cast<Variable*>(node->resource()) : nullptr;
    if (variable == nullptr || written.count(variable) > 0 || !variable->is_merged()) {
      rewrite.copy(*node);
      continue;
    }
    auto& value = merged[variable];
    if (value == nullptr) value = make_merged_variable(variable->shared_from_this());
    rewrite.map(node->output(), rewrite.graph().add("ReadVariable", {}, {}, value).output());
  }
  return rewrite.finish();
}

}  // namespace cohort
