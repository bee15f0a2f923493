#include "strategies/parameter_server/server_variable_info.h"

#include "core/base/error.h"
#include "core/distribute/packing.h"

namespace cohort {
namespace {

int64_t number(Unpacker& in, int64_t least, int64_t most) {
  const int64_t value = in.number();
  if (value < least || value > most)
    fail(Code::kDataLoss, "the description of a server variable is garbled: ", value, " where ",
         least, " to ", most, " is allowed");
  return value;
}

}  // namespace

std::string ServerVariableInfo::optimizer_key(const std::string& key, int number) {
  return str(key, '@', number);
}

bool ServerVariableInfo::is_optimizer_key(std::string_view key) {
  const size_t last = key.find_last_not_of("0123456789");
  return last != std::string_view::npos && last + 1 < key.size() && key[last] == '@';
}

std::string ServerVariableInfo::shard_name(size_t shard) const { return str(key, "/part_", shard); }

RowRange ServerVariableInfo::shard_range(size_t shard) const {
  return shard_rows(rows(), static_cast<int64_t>(num_shards()), static_cast<int64_t>(shard));
}

TensorSpec ServerVariableInfo::shard_spec(size_t shard) const {
  if (spec.shape.rank() == 0) return spec;
  return {spec.dtype, spec.shape.with_dim(0, shard_range(shard).rows())};
}

std::string ServerVariableInfo::pack() const {
  Packer out;
  out.add(name);
  out.add(spec);
  out.add(int64_t{trainable});
  out.add(static_cast<int64_t>(aggregation));
  out.add(int64_t{on_read});
  out.add(key);
  out.add(static_cast<int64_t>(update));
  out.add(int64_t{by_rows});
  out.add(int64_t{lazy});
  out.add(static_cast<int64_t>(slots.size()));
  for (const std::string& slot : slots) out.add(slot);
  out.add(static_cast<int64_t>(servers.size()));
  for (const int server : servers) out.add(int64_t{server});
  return out.bytes();
}

ServerVariableInfo ServerVariableInfo::unpack(std::string_view bytes, int num_servers) {
  Unpacker in(bytes);
  ServerVariableInfo info{.name = in.text(), .spec = in.spec()};
  info.trainable = number(in, 0, 1) != 0;
  info.aggregation =
      static_cast<Aggregation>(number(in, 0, static_cast<int64_t>(Aggregation::kOnlyFirstReplica)));
  info.on_read = number(in, 0, 1) != 0;
  info.key = in.text();
  info.update = static_cast<Update>(number(in, 0, static_cast<int64_t>(Update::kRule)));
  info.by_rows = number(in, 0, 1) != 0;
  info.lazy = number(in, 0, 1) != 0;
  for (int64_t left = number(in, 0, static_cast<int64_t>(bytes.size())); left > 0; --left)
    info.slots.push_back(in.text());
  for (int64_t left = number(in, 0, static_cast<int64_t>(bytes.size())); left > 0; --left)
    info.servers.push_back(static_cast<int>(number(in, 0, num_servers - 1)));
  const int64_t most = std::max<int64_t>(info.rows(), 1);
  if (!in.at_end() || info.servers.empty() || static_cast<int64_t>(info.num_shards()) > most)
    fail(Code::kDataLoss, "variable \"", info.name, "\" ", info.spec, " is said to have ",
         info.num_shards(), " shards");
  return info;
}

}  // namespace cohort
