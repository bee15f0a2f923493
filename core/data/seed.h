#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/data/source.h"

namespace cohort::data {

// The seed of a source that draws random numbers: the user's, or one that follows from
// global_seed() as it was when this was made and from what the pipeline is made of, so that it is
// the same in another process.
class Seed {
 public:
  explicit Seed(std::optional<uint64_t> given);

  // Adds this one, unless it is the user's or there already.
  void add_to(Unseeded& found) const;
  // What random numbers follow from, for messages: "the seed 7". REQUIRES: add_to(all) was called.
  std::string in_words(const Unseeded& all) const;
  // REQUIRES: `pass` is Source::of_inputs() of the source that has it, or of one above.
  uint64_t of(const Pass& pass) const;

 private:
  // Among those without a seed. REQUIRES: as in_words().
  uint64_t number_in(const Unseeded& all) const;

  std::optional<uint64_t> given_;
  uint64_t global_;
  uint64_t identity_;  // of this and its copies, in this process
};

}  // namespace cohort::data
