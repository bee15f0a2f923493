#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/variable.h"
#include "strategies/parameter_server/partitioner.h"

namespace cohort {

// A variable that lives on parameter servers, by value: what another process needs to read it,
// write it and push gradients to it. It says nothing of initial values: shards are there when one
// is attached to.
struct ServerVariableInfo {
  // How gradients and other writes that are pushed change it.
  enum class Update : int {
    kNone = 0,  // not at all: it can only be assigned
    kAdd = 1,   // they are added
    kRule = 2,  // by an optimizer's rule
  };

  std::string name;
  TensorSpec spec;
  bool trainable = true;
  Aggregation aggregation = Aggregation::kNone;
  bool on_read = false;  // Synchronization::kOnRead
  // Its name among the shards of the servers: with each optimizer that takes it over, a new one.
  std::string key;
  Update update = Update::kNone;
  bool by_rows = false;            // whether it takes gradients of rows
  bool lazy = false;               // whether rows are made on first use
  std::vector<std::string> slots;  // of the rule: part 1 of a shard, part 2, ...
  std::vector<int> servers;        // of each shard, in the order of the rows

  // The key of a variable for the `number`-th optimizer that takes it over, from 1; and whether a
  // key is one of these.
  static std::string optimizer_key(const std::string& key, int number);
  static bool is_optimizer_key(std::string_view key);
  size_t num_shards() const { return servers.size(); }
  // Rows of axis 0; a scalar has one.
  int64_t rows() const { return spec.shape.rank() == 0 ? 1 : spec.shape[0]; }
  std::string shard_name(size_t shard) const;
  RowRange shard_range(size_t shard) const;
  // Of what a shard holds.
  TensorSpec shard_spec(size_t shard) const;

  // As bytes, for a process of the same program on a machine of the same kind. kDataLoss for bytes
  // that are none, or that name a server beyond `num_servers`.
  std::string pack() const;
  static ServerVariableInfo unpack(std::string_view bytes, int num_servers);

  bool operator==(const ServerVariableInfo&) const = default;
};

}  // namespace cohort
