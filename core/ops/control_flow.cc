#include "core/ops/control_flow.h"

#include <string_view>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/graph/branch.h"
#include "core/ops/math_ops.h"
#include "core/tensor/specs_of.h"

namespace cohort::ops {
namespace {

template <typename Body>
const Body& given(std::string_view op, const Body& body) {
  if (!body) invalid(op, ": a side is an empty function");
  return body;
}

std::vector<Value> trace(const Value& condition, const BranchBody& body) {
  const BranchScope branch(condition);
  return given("cond", body)();
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
    return BranchBody([&body] { return std::vector<Value>{given("cond", body)()}; });
  };
  return cond(condition, one(then), one(otherwise))[0];
}

void only_if(const Value& condition, const std::function<void()>& then) {
  const BranchScope branch(condition);
  given("only_if", then)();
}

}  // namespace cohort::ops
