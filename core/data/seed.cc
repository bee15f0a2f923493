#include "core/data/seed.h"

#include <algorithm>
#include <atomic>

#include "core/base/random.h"

namespace cohort::data {
namespace {

uint64_t next_identity() {
  static std::atomic<uint64_t> next{0};
  return next++;
}

}  // namespace

Seed::Seed(std::optional<uint64_t> given)
    : given_(given), global_(global_seed()), identity_(next_identity()) {}

void Seed::add_to(Unseeded& found) const {
  if (!given_ && std::find(found.begin(), found.end(), identity_) == found.end())
    found.push_back(identity_);
}

uint64_t Seed::of(const Pass& pass) const {
  if (given_) return *given_;
  const Unseeded& all = *pass.unseeded;
  const auto number = std::find(all.begin(), all.end(), identity_) - all.begin();
  const uint64_t seed = mix(global_, pass.place, static_cast<uint64_t>(number));
  return pass.pipeline == 0 ? seed : mix(seed, pass.pipeline);
}

}  // namespace cohort::data
