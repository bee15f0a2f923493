#include "core/ops/control_flow.h"

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/graph/branch.h"
#include "core/ops/math_ops.h"
#include "core/tensor/specs_of.h"

namespace cohort::ops {
namespace {

std::vector<Value> trace(const Value& condition, const BranchBody& body) {
  const BranchScope branch(condition);
  return body();
}

}  // namespace

std::vector<Value> cond(const Value& condition, const BranchBody& then,
                        const BranchBody& otherwise) {
  std::vector<Value> results = trace(condition, then);
  const std::vector<Value> others = trace(logical_not(condition), otherwise);
  if (specs_of(results) != specs_of(others))
    invalid("cond: one side gives (", comma_separated(specs_of(results)), "), the other (",
            comma_separated(specs_of(others)), ")");
  for (size_t i = 0; i < results.size(); ++i) results[i] = where(condition, results[i], others[i]);
  return results;
}

Value cond(const Value& condition, const std::function<Value()>& then,
           const std::function<Value()>& otherwise) {
  const auto one = [](const std::function<Value()>& body) {
    return BranchBody([&body] { return std::vector<Value>{body()}; });
  };
  return cond(condition, one(then), one(otherwise))[0];
}

void only_if(const Value& condition, const std::function<void()>& then) {
  const BranchScope branch(condition);
  then();
}

}  // namespace cohort::ops
