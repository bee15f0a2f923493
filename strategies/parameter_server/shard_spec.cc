#include "strategies/parameter_server/shard_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxSlots = 16;

void check_name(const char* what, const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes)
    invalid("the name of a ", what, " has 1 to ", kMaxNameBytes, " bytes, got ", name.size());
}

}  // namespace

void ShardSpec::check(size_t max_bytes) const {
  check_name("shard", name);
  check_name("variable", variable);
  const int64_t extent = whole.shape.rank() == 0 ? 1 : whole.shape[0];
  if (begin < 0 || rows < 0 || begin > extent || rows > extent - begin)
    invalid("shard \"", name, "\" has rows ", begin, " to ", begin, " + ", rows, " of ", whole);
  if (update.slots.size() > kMaxSlots)
    invalid("shard \"", name, "\" has ", update.slots.size(), " slots; the limit is ", kMaxSlots);
  std::set<std::string> names = {std::string(parameter_server::kValuePart)};
  for (const auto& slot : update.slots) {
    check_name("slot", slot.name);
    if (!names.insert(slot.name).second)
      invalid("shard \"", name, "\" has two slots \"", slot.name, '"');
    if (std::isnan(slot.initial))
      invalid("shard \"", name, "\": slot \"", slot.name, "\" begins with NaN");
  }
  if (!update.slots.empty() && update.dense.empty() && update.by_rows.empty())
    invalid("shard \"", name, "\" has slots but no update");
  if (whole.dtype == DType::kBool && !(update.dense.empty() && update.by_rows.empty()))
    invalid("shard \"", name, "\" is ", whole.dtype, ", which has no gradient");
  constexpr int64_t kMaxRowBlock = 1 << 16;
  if (!update.by_rows.empty() &&
      (whole.shape.rank() == 0 || update.row_block < 1 || update.row_block > kMaxRowBlock))
    invalid("shard \"", name, "\" is updated in blocks of ", update.row_block, " rows");
  const auto parts = static_cast<size_t>(num_parts());
  const size_t size = dtype_size(whole.dtype);
  const auto most = static_cast<int64_t>(
      std::min<size_t>(max_bytes / size / parts, std::numeric_limits<int64_t>::max()));
  const auto fits = [&](int64_t rows_held) {
    return columns() == 0 || rows_held <= most / columns();
  };
  if (lazy) {
    if (whole.shape.rank() == 0 || !is_floating(whole.dtype))
      invalid("shard \"", name, "\" is ", whole, "; rows on first use need floating-point rows");
    if (lazy->max_rows < 0) invalid("shard \"", name, "\" may have ", lazy->max_rows, " rows");
    if (lazy->kind < RowInitializer::Kind::kConstant || lazy->kind > RowInitializer::Kind::kNormal)
      invalid("shard \"", name, "\": ", static_cast<int>(lazy->kind), " is no initializer");
    if (std::isnan(lazy->a) || std::isnan(lazy->b))
      invalid("shard \"", name, "\": its rows begin with NaN");
    if (lazy->kind != RowInitializer::Kind::kConstant &&
        !(std::isfinite(lazy->a) && std::isfinite(lazy->b - lazy->a)))
      invalid("shard \"", name, "\": its rows begin with random numbers of ", lazy->a, " and ",
              lazy->b, ", which have to be finite, and their difference too");
    if (!update.dense.empty())
      invalid("shard \"", name,
              "\" makes its rows on first use, and has an update of all rows: clear update.dense");
  }
  // A block of rows and its gradient are held besides.
  if (!fits(lazy ? 1 : rows) || !fits(update.by_rows.empty() ? 0 : update.row_block))
    fail(Code::kResourceExhausted, "shard \"", name, "\" is ", spec(), " with ",
         update.slots.size(), " slots; this server has ", max_bytes, " bytes for it");
}

}  // namespace cohort
