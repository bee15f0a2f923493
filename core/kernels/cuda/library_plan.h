#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels/kernel.h"

namespace cohort::cuda {

// What a library does for a node that is handed to it whole.
class LibraryPlan {
 public:
  virtual ~LibraryPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  // Hands the work over. `tensors` are the op's inputs and then its outputs.
  virtual void run(Stream& stream, std::span<void* const> tensors, void* workspace) = 0;
};

// The kernel of such a node.
class LibraryKernel final : public Kernel {
 public:
  explicit LibraryKernel(std::shared_ptr<LibraryPlan> plan) : plan_(std::move(plan)) {}
  size_t scratch_bytes() const override { return plan_->workspace_bytes(); }
  void run(const KernelContext& context) override {
    std::vector<void*> tensors;
    // Only read: libraries take all pointers alike.
    for (const void* input : context.inputs) tensors.push_back(const_cast<void*>(input));
    tensors.insert(tensors.end(), context.outputs.begin(), context.outputs.end());
    plan_->run(*context.stream, tensors, context.scratch);
  }

 private:
  std::shared_ptr<LibraryPlan> plan_;
};

}  // namespace cohort::cuda
