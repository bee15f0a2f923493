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

std::string Seed::in_words(const Unseeded& all) const {
  if (given_) return str("the seed ", *given_);
  return str("the global seed ", global_, " as number ", number_in(all),
             " of those without a seed");
}

uint64_t Seed::number_in(const Unseeded& all) const {
  return static_cast<uint64_t>(std::find(all.begin(), all.end(), identity_) - all.begin());
}

uint64_t Seed::of(const Pass& pass) const {
  if (given_) return *given_;
  const uint64_t seed = mix(global_, pass.place, number_in(*pass.unseeded));
  return pass.pipeline == 0 ? seed : mix(seed, pass.pipeline);
}

}  // namespace cohort::data
