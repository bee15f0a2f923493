#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/part.h"
#include "core/collective/communicator.h"
#include "core/kernels/common/step_collectives.h"

namespace cohort {
namespace {

// How many parts may lie apart. Processes of one host reduce in place where each has no more than
// 1024 stretches of memory to tell the others of, those of undivided values among them.
constexpr int64_t kMostStretches = 512;

void copy(const void* source, void* target, size_t bytes) {
  if (source != target && bytes > 0) std::memcpy(target, source, bytes);
}

class AllReduceKernel final : public Kernel {
 public:
  explicit AllReduceKernel(const KernelSpec& spec) : specs_(spec.inputs), calls_(spec) {}

  bool can_run_in_place(int output, int input) const override { return output == input; }

  void run(const KernelContext& context) override {
    if (Communicator* communicator = context.step.communicator)
      for (const Call& call : calls_.with(context)) communicator->run(call);
    else
      for (size_t i = 0; i < specs_.size(); ++i)
        copy(context.inputs[i], context.outputs[i], specs_[i].bytes());
  }

 private:
  std::vector<TensorSpec> specs_;
  AllReduceCalls calls_;
};

// Starts to reduce its values in the memory of its outputs. The segments stay here until the wait.
// The attribute "unwanted" lists the values whose result this replica does not need, and "divided"
// those of which it needs its "part" alone.
class AllReduceStartKernel final : public Kernel {
 public:
  explicit AllReduceStartKernel(const KernelSpec& spec)
      : specs_(spec.outputs.begin(), spec.outputs.end() - 1),
        op_(reduce_op_of(spec)),
        conditional_(spec.attributes.get<bool>("conditional")) {
    for (const TensorSpec& value : specs_)
      if (value.dtype != specs_[0].dtype)
        invalid("AllReduceStart: all values need one dtype, got ", specs_[0], " and ", value);
    const auto unwanted = listed(spec.attributes, "unwanted");
    const auto divided = listed(spec.attributes, "divided");
    if (std::count(divided.begin(), divided.end(), true) > 0)
      add_parts(divided, spec.attributes.get<std::vector<int64_t>>("part"));
    for (size_t i = 0; i < specs_.size(); ++i)
      if (!divided[i]) pieces_.push_back({i, {0, specs_[i].shape.num_elements()}, !unwanted[i]});
    segments_.resize(pieces_.size());
  }

  bool can_run_in_place(int output, int input) const override {
    return output == input && output < static_cast<int>(specs_.size());
  }

  void run(const KernelContext& context) override {
    for (size_t i = 0; i < specs_.size(); ++i)
      copy(context.inputs[i], context.outputs[i], specs_[i].bytes());
    for (size_t s = 0; s < pieces_.size(); ++s) {
      const Piece& piece = pieces_[s];
      void* const memory = static_cast<char*>(context.outputs[piece.value]) +
                           static_cast<size_t>(piece.part.begin) * dtype_size(specs_[0].dtype);
      segments_[s] = {memory, piece.is_wanted ? memory : nullptr, piece.part.size()};
    }
    Communicator* communicator = context.step.communicator;
    const bool now = !conditional_ || *context.input<bool>(static_cast<int>(specs_.size()));
    *context.output<int64_t>(static_cast<int>(specs_.size())) =
        now && communicator != nullptr
            ? communicator->start_all_reduce(segments_, specs_[0].dtype, op_)
            : -1;
  }

 private:
  // What is reduced as one segment.
  struct Piece {
    size_t value;
    Part part;
    bool is_wanted;
  };

  // By value: whether the attribute `name` lists it.
  std::vector<bool> listed(const Attributes& attributes, std::string_view name) const {
    std::vector<bool> is_listed(specs_.size());
    for (const int64_t i : attributes.get_or<std::vector<int64_t>>(name, {})) {
      if (i < 0 || i >= static_cast<int64_t>(specs_.size()))
        invalid("AllReduceStart: ", name, " value ", i, " of ", specs_.size());
      is_listed[static_cast<size_t>(i)] = true;
    }
    return is_listed;
  }

  // All first parts come first, so that who reduces the first stretch of a bucket reduces those.
  // Where these are too many, all parts of a value follow each other: then those that this replica
  // does not want are neighbours.
  void add_parts(const std::vector<bool>& divided, const std::vector<int64_t>& own_part) {
    const int64_t parts = own_part[1];
    const auto add = [&](size_t value, int64_t p) {
      if (divided[value])
        pieces_.push_back(
            {value, part_of(specs_[value].shape.num_elements(), p, parts), p == own_part[0]});
    };
    if (parts * std::count(divided.begin(), divided.end(), true) <= kMostStretches) {
      for (int64_t p = 0; p < parts; ++p)
        for (size_t i = 0; i < specs_.size(); ++i) add(i, p);
    } else {
      for (size_t i = 0; i < specs_.size(); ++i)
        for (int64_t p = 0; p < parts; ++p) add(i, p);
    }
  }

  std::vector<TensorSpec> specs_;
  ReduceOp op_;
  bool conditional_;
  std::vector<Piece> pieces_;
  std::vector<Segment> segments_;
};

class AllReduceWaitKernel final : public Kernel {
 public:
  explicit AllReduceWaitKernel(const KernelSpec& spec) : specs_(spec.outputs) {}

  bool can_run_in_place(int output, int input) const override { return output == input; }

  void run(const KernelContext& context) override {
    const int64_t operation = *context.input<int64_t>(static_cast<int>(specs_.size()));
    if (operation >= 0) context.step.communicator->wait(operation);
    for (size_t i = 0; i < specs_.size(); ++i)
      copy(context.inputs[i], context.outputs[i], specs_[i].bytes());
  }

 private:
  std::vector<TensorSpec> specs_;
};

class AllGatherKernel final : public Kernel {
 public:
  explicit AllGatherKernel(const KernelSpec& spec)
      : extents_(spec, spec.inputs[0].shape[0], spec.inputs[0]) {}

  void run(const KernelContext& context) override {
    extents_.check(context.step);
    if (context.step.communicator != nullptr)
      context.step.communicator->all_gather(context.inputs[0], context.outputs[0],
                                            extents_.bytes());
    else
      copy(context.inputs[0], context.outputs[0], static_cast<size_t>(extents_.bytes()[0]));
  }

 private:
  Extents extents_;
};

// An all-reduce in which each replica wants only its own rows.
class ReduceScatterKernel final : public Kernel {
 public:
  explicit ReduceScatterKernel(const KernelSpec& spec)
      : dtype_(spec.inputs[0].dtype),
        extents_(spec, spec.outputs[0].shape[0], spec.inputs[0]),
        segments_(extents_.elements().size()) {}

  void run(const KernelContext& context) override {
    extents_.check(context.step);
    const auto* source = static_cast<const char*>(context.inputs[0]);
    const size_t own = rank_of(context.step);
    if (context.step.communicator == nullptr)
      return copy(source, context.outputs[0], static_cast<size_t>(extents_.bytes()[own]));
    for (size_t r = 0; r < segments_.size(); ++r) {
      segments_[r] = {source, r == own ? context.outputs[0] : nullptr, extents_.elements()[r]};
      source += extents_.bytes()[r];
    }
    context.step.communicator->all_reduce(segments_, dtype_, ReduceOp::kSum);
  }

 private:
  DType dtype_;
  Extents extents_;
  std::vector<Segment> segments_;
};

class BroadcastKernel final : public Kernel {
 public:
  explicit BroadcastKernel(const KernelSpec& spec)
      : bytes_(spec.inputs[0].bytes()),
        root_(static_cast<int>(spec.attributes.get<int64_t>("root"))) {}

  bool can_run_in_place(int /*output*/, int /*input*/) const override { return true; }

  void run(const KernelContext& context) override {
    Communicator* communicator = context.step.communicator;
    check_root(root_, context.step);
    if (communicator == nullptr) return copy(context.inputs[0], context.outputs[0], bytes_);
    communicator->broadcast(context.inputs[0], context.outputs[0], static_cast<int64_t>(bytes_),
                            root_);
  }

 private:
  size_t bytes_;
  int root_;
};

COHORT_REGISTER_KERNEL("AllReduce", kCpu, make_plain<AllReduceKernel>);
COHORT_REGISTER_KERNEL("AllReduceStart", kCpu, make_plain<AllReduceStartKernel>);
COHORT_REGISTER_KERNEL("AllReduceWait", kCpu, make_plain<AllReduceWaitKernel>);
COHORT_REGISTER_KERNEL("AllGather", kCpu, make_plain<AllGatherKernel>);
COHORT_REGISTER_KERNEL("ReduceScatter", kCpu, make_plain<ReduceScatterKernel>);
COHORT_REGISTER_KERNEL("Broadcast", kCpu, make_plain<BroadcastKernel>);

COHORT_REGISTER_KERNEL("Barrier", kCpu,
                       stateless_kernel([](const KernelCall& call, const KernelContext& context) {
                         const int64_t topic = call.attributes.get_or<int64_t>("topic", 0);
                         if (context.step.communicator != nullptr)
                           context.step.communicator->barrier(static_cast<uint64_t>(topic));
                       }));
COHORT_REGISTER_KERNEL("ReplicaId", kCpu,
                       stateless_kernel([](const KernelCall&, const KernelContext& context) {
                         *context.output<int64_t>(0) = context.step.replica_id;
                       }));

}  // namespace
}  // namespace cohort
