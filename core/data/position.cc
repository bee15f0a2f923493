#include "core/data/position.h"

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace cohort::data {
namespace {

using Json = nlohmann::json;

// Far above any pipeline that is written by hand, far below what recursion can take.
constexpr int kMaxDepth = 1000;

Json to_value(const Position& position) {
  if (!position.restorable)
    fail(Code::kFailedPrecondition, "the place in this dataset cannot be saved: \"", position.kind,
         "\" would read again what map({.deterministic = false}) yields in another order each "
         "time; leave that option out, or map after it");
  Json value = {position.kind, position.numbers};
  for (const Position& input : position.inputs) value.push_back(to_value(input));
  return value;
}

bool is_position(const Json& value) {
  return value.is_array() && value.size() >= 2 && value[0].is_string() && value[1].is_array();
}

[[noreturn]] void fail_no_position() {
  fail(Code::kDataLoss, "this is not the saved position of a dataset iterator");
}

Position from_value(const Json& value, int depth) {
  if (!is_position(value) || depth > kMaxDepth) fail_no_position();
  Position position{.kind = value[0].get<std::string>()};
  for (const Json& number : value[1]) {
    if (!number.is_number_integer()) position.fail_corrupt();
    position.numbers.push_back(number.get<int64_t>());
  }
  for (size_t i = 2; i < value.size(); ++i)
    position.inputs.push_back(from_value(value[i], depth + 1));
  return position;
}

}  // namespace

void Position::expect(std::string_view wanted_kind, size_t wanted_numbers,
                      size_t wanted_inputs) const {
  if (kind != wanted_kind)
    fail(Code::kFailedPrecondition, "this position was saved by another pipeline: it has \"", kind,
         "\" where this one has \"", wanted_kind, "\"");
  if (numbers.size() != wanted_numbers || inputs.size() != wanted_inputs) fail_corrupt();
}

void Position::expect_argument(size_t index, int64_t here) const {
  if (numbers[index] != here)
    fail(Code::kFailedPrecondition, "this position was saved with ", kind, "(", numbers[index],
         "); this pipeline has ", kind, "(", here, ")");
}

int64_t Position::number(size_t index, int64_t most) const {
  if (index >= numbers.size() || numbers[index] < 0 || numbers[index] > most) fail_corrupt();
  return numbers[index];
}

void Position::fail_corrupt() const {
  fail(Code::kDataLoss, "the saved position of \"", kind,
       "\" is corrupt, or its dataset has changed");
}

std::string to_json(const Position& position) {
  const Json value = to_value(position);
  return Json::array({crc32c(value.dump()), value}).dump();
}

Position position_from_json(std::string_view text) {
  const Json value = Json::parse(text, /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (is_position(value) && from_value(value, 0).kind == "iterator")
    fail(Code::kFailedPrecondition,
         "this position was saved by an older version, without a checksum, and cannot be "
         "continued");
  if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned()) fail_no_position();
  Position position = from_value(value[1], 0);
  if (crc32c(to_value(position).dump()) != value[0].get<uint64_t>())
    fail(Code::kDataLoss,
         "the saved position of a dataset iterator is damaged: its checksum does not fit");
  return position;
}

}  // namespace cohort::data
