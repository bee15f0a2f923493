#include "strategies/parameter_server/snapshot.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/train/safetensors.h"

namespace cohort::parameter_server {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr uint64_t kMaxManifestBytes = 256 << 20;

std::string_view bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

std::string part_key(const std::string& shard, size_t part) { return str(shard, "#", part); }
std::string rows_key(const std::string& shard) { return shard + "#rows"; }

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

Json describe(const ShardState& state) {
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
  for (const auto& slot : spec.update.slots)
    json["slots"].push_back({{"name", to_hex(slot.name)}, {"initial", slot.initial}});
  for (const auto& [task, mark] : state.marks)
    json["marks"].push_back(
        {{"task", to_hex(task)}, {"incarnation", mark.incarnation}, {"sequence", mark.sequence}});
  if (spec.lazy)
    json["lazy"] = {{"kind", static_cast<int>(spec.lazy->kind)},
                    {"a", spec.lazy->a},
                    {"b", spec.lazy->b},
                    {"seed", spec.lazy->seed},
                    {"max_rows", spec.lazy->max_rows}};
  return json;
}

std::string text_of(const Json& json, const char* key) {
  return from_hex(json.at(key).get<std::string>());
}

ShardState parse(const Json& json) {
  ShardState state{.spec = {.name = text_of(json, "name"),
                            .variable = text_of(json, "variable"),
                            .whole = {dtype_from_name(json.at("dtype").get<std::string>()),
                                      Shape(json.at("shape").get<std::vector<int64_t>>())},
                            .begin = json.at("begin").get<int64_t>(),
                            .rows = json.at("rows").get<int64_t>(),
                            .update = {.dense = text_of(json, "update"),
                                       .by_rows = text_of(json, "row_update"),
                                       .row_block = json.at("row_block").get<int64_t>()}},
                   .version = json.at("version").get<uint64_t>(),
                   .updates = json.at("updates").get<uint64_t>()};
  for (const Json& slot : json.at("slots"))
    state.spec.update.slots.push_back({text_of(slot, "name"), slot.at("initial").get<double>()});
  for (const Json& mark : json.at("marks"))
    state.marks[text_of(mark, "task")] = {.incarnation = mark.at("incarnation").get<uint64_t>(),
                                          .sequence = mark.at("sequence").get<uint64_t>()};
  if (json.contains("lazy")) {
    const Json& lazy = json.at("lazy");
    state.spec.lazy =
        RowInitializer{.kind = static_cast<RowInitializer::Kind>(lazy.at("kind").get<int>()),
                       .a = lazy.at("a").get<double>(),
                       .b = lazy.at("b").get<double>(),
                       .seed = lazy.at("seed").get<uint64_t>(),
                       .max_rows = lazy.at("max_rows").get<int64_t>()};
  }
  state.spec.check(std::numeric_limits<size_t>::max());
  return state;
}

// Takes a tensor out of a file's content, and compares it with what the manifest says.
Tensor take(std::map<std::string, Tensor>& tensors, const Json& checks, const std::string& key) {
  const auto found = tensors.find(key);
  if (found == tensors.end()) invalid("tensor \"", key, "\" is missing");
  if (!checks.contains(key) || crc32c(bytes_of(found->second)) != checks.at(key).get<uint32_t>())
    invalid("tensor \"", key, "\" is not as it was written: its checksum differs");
  return std::move(found->second);
}

void require_spec(const std::string& key, const Tensor& tensor, const TensorSpec& wanted) {
  if (!(tensor.spec() == wanted))
    invalid("tensor \"", key, "\" is ", tensor.spec(), ", expected ", wanted);
}

void read_parts(ShardState& state, std::map<std::string, Tensor>& tensors, const Json& checks) {
  const std::string name = to_hex(state.spec.name);
  TensorSpec spec = state.spec.spec();
  if (state.spec.lazy) {
    const std::string key = rows_key(name);
    const Tensor rows = take(tensors, checks, key);
    require_spec(key, rows, {DType::kInt64, {rows.num_elements()}});
    const auto values = rows.values<int64_t>();
    state.row_ids.emplace(values.begin(), values.end());
    const bool in_range = std::ranges::all_of(
        *state.row_ids, [&](int64_t row) { return row >= 0 && row < state.spec.rows; });
    if (!in_range || std::set(values.begin(), values.end()).size() != values.size())
      invalid("tensor \"", key, "\" names rows that are not of the shard, or some twice");
    spec.shape = spec.shape.with_dim(0, rows.num_elements());
  }
  for (size_t part = 0; part < static_cast<size_t>(state.spec.num_parts()); ++part) {
    const std::string key = part_key(name, part);
    state.parts.push_back(take(tensors, checks, key));
    require_spec(key, state.parts.back(), spec);
  }
}

// A name that no file of the folder has: the one that the manifest names stays until the end.
std::string new_file(const std::string& folder) {
  int64_t last = 0;
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error) fail(Code::kPermissionDenied, "cannot list ", folder, ": ", error.message());
  for (const auto& entry : entries) {
    int64_t number = 0;
    if (std::sscanf(entry.path().filename().c_str(), "shards-%" SCNd64, &number) == 1)
      last = std::max(last, number);
  }
  return str("shards-", last + 1, ".safetensors");
}

// Rows of a variable, and the folder that has them.
struct SavedRows {
  int64_t begin, rows;
  std::string folder;
};

void require_once(const std::string& variable, std::vector<SavedRows> all) {
  std::erase_if(all, [](const SavedRows& some) { return some.rows == 0; });
  std::ranges::sort(all, {}, &SavedRows::begin);
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].begin < all[i - 1].begin + all[i - 1].rows)
      invalid(all[i - 1].folder, " and ", all[i].folder, " both have row ", all[i].begin,
              " of variable \"", variable,
              "\": they are of different snapshots; remove the one that is not wanted");
}

void remove_others(const std::string& folder, const std::string& kept) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("shards-") && name.find(".safetensors") != std::string::npos &&
        name != kept)
      std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

void write_snapshot(const std::string& folder, const std::vector<ShardState>& shards) {
  create_folders(folder);
  Safetensors content;
  Json manifest = {{"format", kFormat}, {"shards", Json::array()}, {"crc32c", Json::object()}};
  for (const ShardState& state : shards) {
    manifest["shards"].push_back(describe(state));
    const std::string name = to_hex(state.spec.name);
    for (size_t part = 0; part < state.parts.size(); ++part)
      content.tensors[part_key(name, part)] = state.parts[part];
    if (state.row_ids)
      content.tensors[rows_key(name)] =
          Tensor::from(*state.row_ids, {static_cast<int64_t>(state.row_ids->size())});
  }
  for (const auto& [key, tensor] : content.tensors)
    manifest["crc32c"][key] = crc32c(bytes_of(tensor));
  const std::string file = new_file(folder);
  manifest["file"] = file;
  write_safetensors(folder + "/" + file, content);
  const std::string text = manifest.dump();
  write_file_atomically(folder + "/" + kSnapshotFile, str(text, "\n", crc32c(text), "\n"));
  remove_others(folder, file);
}

std::vector<ShardState> read_snapshot(const std::string& folder) {
  const std::string path = folder + "/" + kSnapshotFile;
  const std::string text = read_file(path, kMaxManifestBytes);
  try {
    const size_t line = text.find('\n');
    const std::string body = text.substr(0, line);
    if (line == std::string::npos || text.substr(line + 1) != str(crc32c(body), "\n"))
      invalid("the file is not as it was written: its checksum differs");
    const Json manifest = Json::parse(body);
    if (manifest.at("format").get<int>() != kFormat)
      fail(Code::kUnimplemented, "format ", manifest.at("format").dump(), " is not ", kFormat);
    const std::string file = manifest.at("file").get<std::string>();
    if (file.find('/') != std::string::npos) invalid("\"", file, "\" is no file of the folder");
    Safetensors content = read_safetensors(folder + "/" + file);
    std::vector<ShardState> shards;
    for (const Json& json : manifest.at("shards")) {
      shards.push_back(parse(json));
      read_parts(shards.back(), content.tensors, manifest.at("crc32c"));
    }
    return shards;
  } catch (const Json::exception& error) {
    fail(Code::kDataLoss, path, ": ", error.what());
  } catch (const Error& error) {
    fail(Code::kDataLoss, path, ": ", error.message());
  }
}

std::vector<ShardState> read_snapshots(const std::string& folder) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (std::filesystem::exists(entry.path() / kSnapshotFile, ignored))
      folders.push_back(entry.path().string());
  if (folders.empty()) fail(Code::kNotFound, "there is no snapshot in ", folder);
  std::ranges::sort(folders);
  std::vector<ShardState> all;
  std::map<std::string, std::vector<SavedRows>> rows;
  for (const std::string& one : folders)
    for (ShardState& state : read_snapshot(one)) {
      rows[state.spec.variable].push_back({state.spec.begin, state.spec.rows, one});
      all.push_back(std::move(state));
    }
  for (auto& [variable, ranges] : rows) require_once(variable, std::move(ranges));
  return all;
}

bool remove_snapshot(const std::string& folder) {
  std::error_code ignored;
  // First what makes the other files a snapshot.
  if (!std::filesystem::remove(folder + "/" + kSnapshotFile, ignored)) return false;
  remove_others(folder, "");
  std::filesystem::remove(folder, ignored);
  return true;
}

}  // namespace cohort::parameter_server
