#include "core/nn/added_losses.h"

#include <utility>

namespace cohort::nn {
namespace {

thread_local AddedLosses* t_innermost = nullptr;

}  // namespace

AddedLosses::AddedLosses() : outer_(std::exchange(t_innermost, this)) {}

AddedLosses::~AddedLosses() { t_innermost = outer_; }

void AddedLosses::add(const Value& loss) {
  if (t_innermost != nullptr) t_innermost->values_.push_back(loss);
}

}  // namespace cohort::nn
