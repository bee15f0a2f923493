#pragma once

#include <cstdint>
#include <vector>

namespace cohort {

// What a shard asks of its server: neither number is below 0.
struct ShardLoad {
  int64_t bytes = 0;    // that it takes, slots included
  int64_t traffic = 0;  // bytes that a step moves; of a table, those of the rows of a batch
};

// Chooses servers for shards: for each one that whose memory or traffic, whichever is the greater
// share of all placed so far, stays smallest; of several the one with the smaller sum, then the
// first. It depends on nothing but the sequence of shards, so that every task finds the same places
// on its own. Not synchronised.
class Placement {
 public:
  // kInvalidArgument below one server.
  explicit Placement(int num_servers);
  int place(ShardLoad load);
  // Counts a shard whose server, one of ours, is not for us to choose.
  void add(int server, ShardLoad load);
  // What each server has been given.
  const std::vector<ShardLoad>& loads() const { return loads_; }

 private:
  std::vector<ShardLoad> loads_;
  ShardLoad total_;
};

}  // namespace cohort
