#pragma once

#include <string>

namespace cohort::data {

// A source or transformation of a pipeline, by what it has to do with which elements there are and
// in which order. What functions do is not in it, nor how elements are made ready.
struct Stage {
  enum class Role {
    kOrders,    // decides on the order, or on which elements of it there are
    kCounts,    // says by a number which elements, steps or passes there are
    kStacks,    // stacks elements that follow one another, which changes nothing once they are
    kUnstacks,  // taken apart again
    kShares     // gives each pipeline its share of a list that all have alike
  };
  std::string call;        // with its arguments: "shuffle(100)"
  std::string draws = {};  // what its random numbers follow from: "the seed 7"; empty for none
  Role role = Role::kOrders;
  std::string share = {};  // which one is read, where it is to be divided further: "rank 0 of 4"

  bool operator==(const Stage& other) const {
    return call == other.call && draws == other.draws && share == other.share;
  }
};

}  // namespace cohort::data
