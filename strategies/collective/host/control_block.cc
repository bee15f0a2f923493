#include "strategies/collective/host/control_block.h"

namespace cohort {
namespace {

constexpr size_t kPage = 4096;

size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

ControlBlock::ControlBlock(int size) : size_(size) {
  const auto n = static_cast<size_t>(size);
  ranks_ = round_up(sizeof(MeetingState));
  posts_ = round_up(ranks_ + n * sizeof(RankState));
  failures_ = round_up(posts_ + 2 * n * sizeof(Post));
  staging_ = round_up(failures_ + n * n * sizeof(std::atomic<uint64_t>));
  lanes_ = staging_ + 4 * n * kStagingBytes;
}

size_t ControlBlock::bytes() const {
  const auto n = static_cast<size_t>(size_);
  return round_up(lanes_ + n * n * sizeof(Lane));
}

ControlBlock ControlBlock::create(int size) {
  ControlBlock block(size);
  // Lanes are many, and most are never used.
  block.region_ = SharedRegion::create(block.bytes(), block.lanes_);
  return block;
}

ControlBlock ControlBlock::open(const ProcessIdentity& owner, int descriptor, int size) {
  ControlBlock block(size);
  block.region_ = SharedRegion::open(owner, descriptor, block.bytes());
  return block;
}

}  // namespace cohort
