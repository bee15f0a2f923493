#include "strategies/parameter_server/shard_json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

using Json = nlohmann::json;

// Names are any bytes, updates too: JSON has text alone.
std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    text += kDigits[static_cast<uint8_t>(c) >> 4];
    text += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

std::string from_hex(const std::string& text) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    invalid("\"", c, "\" is no hexadecimal digit");
  };
  if (text.size() % 2 != 0) invalid("an odd number of hexadecimal digits");
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  return bytes;
}

// JSON has finite numbers alone.
Json to_json(double number) {
  if (std::isfinite(number)) return number;
  return number > 0 ? "inf" : "-inf";
}

double number_of(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto text = json.get<std::string>();
  if (text != "inf" && text != "-inf") invalid('"', text, "\" is no number");
  return text == "inf" ? kInfinity : -kInfinity;
}

std::string text_of(const Json& json, const char* key) {
  return from_hex(json.at(key).get<std::string>());
}

}  // namespace

Json json_of(const ShardState& state) {
  const ShardSpec& spec = state.spec;
  Json json = {{"name", to_hex(spec.name)},
               {"variable", to_hex(spec.variable)},
               {"dtype", std::string(dtype_name(spec.whole.dtype))},
               {"shape", spec.whole.shape.to_vector()},
               {"begin", spec.begin},
               {"rows", spec.rows},
               {"update", to_hex(spec.update.dense)},
               {"row_update", to_hex(spec.update.by_rows)},
               {"row_block", spec.update.row_block},
               {"version", state.version},
               {"updates", state.updates},
               {"slots", Json::array()},
               {"marks", Json::array()}};
  if (state.birth != 0) json["birth"] = state.birth;
  for (const auto& slot : spec.update.slots)
    json["slots"].push_back({{"name", to_hex(slot.name)}, {"initial", to_json(slot.initial)}});
  for (const auto& [task, mark] : state.marks)
    json["marks"].push_back(
        {{"task", to_hex(task)}, {"incarnation", mark.incarnation}, {"sequence", mark.sequence}});
  if (spec.lazy)
    json["lazy"] = {{"kind", static_cast<int>(spec.lazy->kind)},
                    {"a", to_json(spec.lazy->a)},
                    {"b", to_json(spec.lazy->b)},
                    {"seed", spec.lazy->seed},
                    {"max_rows", spec.lazy->max_rows}};
  return json;
}

ShardState shard_in(const Json& json) {
  ShardState state{.spec = {.name = text_of(json, "name"),
                            .variable = text_of(json, "variable"),
                            .whole = {dtype_from_name(json.at("dtype").get<std::string>()),
                                      Shape(json.at("shape").get<std::vector<int64_t>>())},
                            .begin = json.at("begin").get<int64_t>(),
                            .rows = json.at("rows").get<int64_t>(),
                            .update = {.dense = text_of(json, "update"),
                                       .by_rows = text_of(json, "row_update"),
                                       .row_block = json.at("row_block").get<int64_t>()}},
                   .birth = json.value("birth", uint64_t{0}),
                   .version = json.at("version").get<uint64_t>(),
                   .updates = json.at("updates").get<uint64_t>()};
  for (const Json& slot : json.at("slots"))
    state.spec.update.slots.push_back({text_of(slot, "name"), number_of(slot.at("initial"))});
  for (const Json& mark : json.at("marks"))
    state.marks[text_of(mark, "task")] = {.incarnation = mark.at("incarnation").get<uint64_t>(),
                                          .sequence = mark.at("sequence").get<uint64_t>()};
  if (json.contains("lazy")) {
    const Json& lazy = json.at("lazy");
    state.spec.lazy =
        RowInitializer{.kind = static_cast<RowInitializer::Kind>(lazy.at("kind").get<int>()),
                       .a = number_of(lazy.at("a")),
                       .b = number_of(lazy.at("b")),
                       .seed = lazy.at("seed").get<uint64_t>(),
                       .max_rows = lazy.at("max_rows").get<int64_t>()};
  }
  state.spec.check(std::numeric_limits<size_t>::max());
  return state;
}

}  // namespace cohort::parameter_server
