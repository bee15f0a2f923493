#include <utility>

#include "core/data/sharding.h"

namespace cohort::data {
namespace {

// Sets what its input's passes have to do with pipelines. Leaves no trace in positions.
class PipelinePassSource : public Decorator<PipelinePassSource> {
 public:
  PipelinePassSource(SourcePtr input, uint64_t pipeline, bool in_order)
      : Decorator(std::move(input)), pipeline_(pipeline), in_order_(in_order) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    Pass own = pass;
    own.pipeline = pipeline_;
    own.in_order |= in_order_;
    return input().open(own);
  }
  bool is_ordered() const override { return in_order_ || Decorator::is_ordered(); }

 private:
  uint64_t pipeline_;
  bool in_order_;
};

}  // namespace

SourcePtr read_by_one(SourcePtr source, int64_t index) {
  return std::make_shared<PipelinePassSource>(std::move(source), static_cast<uint64_t>(index),
                                              /*in_order=*/false);
}

SourcePtr read_alike(SourcePtr source) {
  return std::make_shared<PipelinePassSource>(std::move(source), uint64_t{0}, /*in_order=*/true);
}

}  // namespace cohort::data
