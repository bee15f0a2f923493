#include <utility>

#include "core/data/sharding.h"

namespace cohort::data {
namespace {

// Sets what its input's passes have to do with pipelines. Leaves no trace in positions.
class PipelinePassSource : public Decorator<PipelinePassSource> {
 public:
  PipelinePassSource(SourcePtr input, uint64_t pipeline)
      : Decorator(std::move(input)), pipeline_(pipeline) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    Pass own = pass;
    own.pipeline = pipeline_;
    return input().open(own);
  }

 private:
  uint64_t pipeline_;
};

}  // namespace

SourcePtr read_by_one(SourcePtr source, int64_t index) {
  return std::make_shared<PipelinePassSource>(std::move(source), static_cast<uint64_t>(index));
}

SourcePtr read_alike(SourcePtr source) {
  return std::make_shared<PipelinePassSource>(std::move(source), uint64_t{0});
}

}  // namespace cohort::data
