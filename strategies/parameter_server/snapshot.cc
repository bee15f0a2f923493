#include "strategies/parameter_server/snapshot.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"
#include "strategies/parameter_server/folder_sync.h"
#include "strategies/parameter_server/shard_json.h"
#include "strategies/parameter_server/values_file.h"

namespace cohort::parameter_server {
namespace {

using Json = nlohmann::json;
using Place = ValuesFile::Place;

constexpr int kFormat = 2;

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

std::string_view bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

std::string_view bytes_of(const std::vector<int64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

// Those that are known.
std::string described(const SnapshotFacts& facts) {
  const std::string servers = facts.num_servers > 0 ? str(",\"servers\":", facts.num_servers) : "";
  const std::string log = facts.log_goes_on > 0 ? str(",\"log\":", facts.log_goes_on) : "";
  return servers + log;
}

// What the manifest says of a shard and of its tensors, which lie in the file from `at` on.
class Reader {
 public:
  explicit Reader(std::shared_ptr<const ValuesFile> file) : file_(std::move(file)) {}

  SavedShard next(const Json& json) {
    SavedShard saved{.about = shard_in(json), .rows = 0, .load_row_ids = nullptr, .load = nullptr};
    const ShardSpec& spec = saved.about.spec;
    TensorSpec part = spec.spec();
    std::vector<Place> places;
    if (spec.lazy) {
      const auto in_use = json.at("in_use").get<uint64_t>();
      // Before there is a shape of so many rows.
      require_room(spec.name, in_use, sizeof(int64_t));
      require_room(spec.name, in_use, spec.row_bytes());
      part.shape = part.shape.with_dim(0, static_cast<int64_t>(in_use));
      places.push_back({.what = str("the row numbers of shard \"", spec.name, '"'),
                        .spec = {DType::kInt64, {static_cast<int64_t>(in_use)}}});
    }
    saved.rows = part.shape.rank() == 0 ? 1 : part.shape[0];
    for (int i = 0; i < spec.num_parts(); ++i)
      places.push_back({.what = str("part ", i, " of shard \"", spec.name, '"'), .spec = part});
    find(spec.name, json.at("crc32c").get<std::vector<uint32_t>>(), places);
    verify(spec, places);
    if (spec.lazy)
      saved.load_row_ids = [file = file_, place = places[0], limit = spec.rows] {
        return file->rows(place, limit);
      };
    saved.read_rows =
        [file = file_, parts = std::vector(places.end() - spec.num_parts(), places.end()),
         row_bytes = spec.row_bytes()](int number, const RowRange& rows, char* target) {
          file->read_rows(parts[static_cast<size_t>(number)], rows, row_bytes, target);
        };
    saved.load = [file = file_, about = saved.about, places] { return load(*file, about, places); };
    return saved;
  }

  // All of the file belongs to a shard.
  void end() const {
    if (at_ != file_->bytes()) file_->corrupt(file_->bytes() - at_, " bytes belong to no shard");
  }

 private:
  void require_room(const std::string& shard, uint64_t count, uint64_t each) const {
    if (const uint64_t left = file_->bytes() - at_; each > 0 && count > left / each)
      file_->corrupt("shard \"", shard, "\" would have ", count, " times ", each,
                     " bytes, and the file has ", left, " more");
  }

  void find(const std::string& shard, const std::vector<uint32_t>& checks,
            std::vector<Place>& places) {
    if (checks.size() != places.size())
      file_->corrupt("shard \"", shard, "\" has ", places.size(), " tensors, and ", checks.size(),
                     " checks");
    for (size_t i = 0; i < places.size(); ++i) {
      require_room(shard, 1, places[i].spec.bytes());
      places[i].begin = at_;
      places[i].check = checks[i];
      at_ += places[i].spec.bytes();
    }
  }

  void verify(const ShardSpec& spec, const std::vector<Place>& places) const {
    for (const Place& place : places) file_->verify(place);
    if (spec.lazy) file_->rows(places[0], spec.rows);
  }

  static ShardState load(const ValuesFile& file, ShardState state,
                         const std::vector<Place>& places) {
    if (state.spec.lazy) state.row_ids = file.rows(places[0], state.spec.rows);
    for (size_t i = state.spec.lazy ? 1 : 0; i < places.size(); ++i)
      state.parts.push_back(file.tensor(places[i]));
    return state;
  }

  const std::shared_ptr<const ValuesFile> file_;
  uint64_t at_ = 0;
};

// A name that no file of the folder has: the one that the manifest names stays until the end.
std::string new_file(const std::string& folder) {
  create_folders(folder);
  int64_t last = 0;
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error) fail(code_of_errno(error.value()), "cannot list ", folder, ": ", error.message());
  for (const auto& entry : entries) {
    int64_t number = 0;
    if (std::sscanf(entry.path().filename().c_str(), "shards-%" SCNd64, &number) == 1)
      last = std::max(last, number);
  }
  return str("shards-", last + 1);
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

// What the snapshots in a folder's folders say of the servers that wrote them must agree, and each
// of these must have its folder. Those that do not say are not asked. One that never had a shard
// may have a folder without a snapshot.
void require_all_servers(const std::string& folder, const std::vector<std::string>& folders) {
  int num_servers = 0;
  std::string by;  // the folder that says so
  for (const std::string& one : folders) {
    const int said = facts_of_snapshot(one).num_servers;
    if (said == 0) continue;
    if (num_servers != 0 && said != num_servers)
      invalid(by, " was written by one of ", num_servers, " servers, and ", one, " by one of ",
              said, ": they are of different snapshots; remove those that are not wanted");
    num_servers = said;
    by = one;
  }
  for (int server = 0; server < num_servers; ++server) {
    const std::string one = str(folder, "/ps-", server);
    std::error_code error;
    if (!std::filesystem::exists(one, error) && !error)
      invalid(by, " was written by one of ", num_servers, " servers, and ", one,
              " is missing: without it the snapshot is not whole");
  }
}

void remove_others(const std::string& folder, const std::set<std::string>& kept) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("shards-") && !kept.contains(name))
      std::filesystem::remove(entry.path(), ignored);
  }
}

// Whether an error tells that a file could not be read this time, and nothing of what is in it: it
// may be whole. What the device cannot give back (EIO) is among these, for so is what a server of
// files that is away does not give.
bool is_unread(const Error& error) {
  return error.code() == Code::kPermissionDenied || error.code() == Code::kResourceExhausted ||
         error.code() == Code::kUnknown;
}

// What `read` makes of a manifest. Errors are kDataLoss and name it where it, or the file that it
// names, is not as it was written; else those of files, as kNotFound where there is no manifest.
template <typename Read>
auto with_manifest(const std::string& path, const Read& read) {
  const std::string text = read_file(path, kMaxManifestBytes);
  try {
    const size_t line = text.find('\n');
    const std::string body = text.substr(0, line);
    if (line == std::string::npos || text.substr(line + 1) != str(crc32c(body), "\n"))
      invalid("the file is not as it was written: its checksum differs");
    const Json manifest = Json::parse(body);
    if (manifest.at("format").get<int>() != kFormat)
      fail(Code::kUnimplemented, "format ", manifest.at("format").dump(), " is not ", kFormat);
    return read(manifest);
  } catch (const Json::exception& error) {
    fail(Code::kDataLoss, path, ": ", error.what());
  } catch (const Error& error) {
    if (is_unread(error)) throw;
    fail(Code::kDataLoss, path, ": ", error.message());
  }
}

std::vector<SavedShard> read_shards(const std::string& folder, const char* manifest_file) {
  return with_manifest(folder + "/" + manifest_file, [&](const Json& manifest) {
    const std::string name = manifest.at("file").get<std::string>();
    if (name.find('/') != std::string::npos) invalid("\"", name, "\" is no file of the folder");
    const auto file = std::make_shared<const ValuesFile>(folder + "/" + name);
    if (const auto bytes = manifest.at("bytes").get<uint64_t>(); bytes != file->bytes())
      file->corrupt("it has ", file->bytes(), " bytes, and ", bytes, " were written");
    Reader reader(file);
    std::vector<SavedShard> shards;
    for (const Json& json : manifest.at("shards")) shards.push_back(reader.next(json));
    reader.end();
    return shards;
  });
}

// Of a manifest that is there and whole: the file that it names. "" where it is missing or damaged;
// else errors as those of files.
std::string file_named_by(const std::string& manifest) {
  try {
    return with_manifest(manifest,
                         [](const Json& json) { return json.at("file").get<std::string>(); });
  } catch (const Error& error) {
    if (is_unread(error)) throw;
    return "";
  }
}

// Before another takes the place of the folder's snapshot: it is the previous one from now on. A
// damaged one leaves that as it is, and where there is none, that is of another time. Returns the
// file that the previous one names, or "".
std::string keep_as_previous(const std::string& folder) {
  const std::string last = folder + "/" + kSnapshotFile, previous = folder + "/" + kPreviousFile;
  if (!has_snapshot(folder)) {
    std::error_code ignored;
    std::filesystem::remove(previous, ignored);
    return "";
  }
  std::string file = file_named_by(last);
  if (file.empty()) return file_named_by(previous);
  write_file_atomically(previous, read_file(last, kMaxManifestBytes));
  return file;
}

// Where it is not known, too.
bool may_hold(const std::string& path, const std::string& text) {
  try {
    return read_file(path, kMaxManifestBytes) == text;
  } catch (const Error& error) {
    return error.code() != Code::kNotFound;
  }
}

}  // namespace

SnapshotWriter::SnapshotWriter(const std::string& folder, const SnapshotFacts& facts,
                               uint64_t max_manifest_bytes)
    : folder_(folder),
      file_(new_file(folder)),
      facts_(facts),
      max_manifest_bytes_(max_manifest_bytes),
      output_(::open(path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!output_) fail_errno("write", path());
}

SnapshotWriter::~SnapshotWriter() {
  if (!is_named_) ::unlink(path().c_str());
}

uint32_t SnapshotWriter::write(std::string_view bytes) {
  for (std::string_view left = bytes; !left.empty();) {
    errno = ENOSPC;  // where nothing is written and nothing said
    const ssize_t written = ::write(output_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_errno("write", path());
    left.remove_prefix(static_cast<size_t>(written));
  }
  bytes_ += bytes.size();
  return crc32c(bytes);
}

void SnapshotWriter::add(const ShardState& state) {
  Json json = json_of(state);
  json["crc32c"] = Json::array();
  if (state.row_ids) {
    json["in_use"] = state.row_ids->size();
    json["crc32c"].push_back(write(bytes_of(*state.row_ids)));
  }
  for (const Tensor& part : state.parts) json["crc32c"].push_back(write(bytes_of(part)));
  if (!shards_.empty()) shards_ += ',';
  shards_ += json.dump();
}

void SnapshotWriter::commit() {
  if (::fsync(output_.get()) != 0) fail_errno("write", path());
  output_.reset();
  sync_folder(folder_);
  const std::string manifest = folder_ + "/" + kSnapshotFile;
  std::string text = str("{\"format\":", kFormat, described(facts_), ",\"file\":\"", file_,
                         "\",\"bytes\":", bytes_, ",\"shards\":[", shards_, "]}");
  text += str("\n", crc32c(text), "\n");
  if (text.size() > max_manifest_bytes_)
    fail(Code::kResourceExhausted, manifest, " would have ", text.size(), " bytes, and only ",
         max_manifest_bytes_, " would be read again: shards, updates and marks take too many");
  const std::string before = keep_as_previous(folder_);
  try {
    write_file_atomically(manifest, text);
  } catch (const Error&) {
    is_named_ = may_hold(manifest, text);
    throw;
  }
  is_named_ = true;
  remove_others(folder_, {file_, before});
}

bool has_snapshot(const std::string& folder) {
  std::error_code error;
  const bool is_there = std::filesystem::exists(folder + "/" + kSnapshotFile, error);
  if (error)
    fail(code_of_errno(error.value()), "cannot look for a snapshot in ", folder, ": ",
         error.message());
  return is_there;
}

std::vector<SavedShard> read_snapshot(const std::string& folder) {
  return read_shards(folder, kSnapshotFile);
}

void go_back_to_previous(const std::string& folder) {
  read_shards(folder, kPreviousFile);
  const std::string previous = folder + "/" + kPreviousFile;
  if (::rename(previous.c_str(), (folder + "/" + kSnapshotFile).c_str()) != 0)
    fail_errno("rename", previous);
  sync_folder(folder);
}

SnapshotFacts facts_of_snapshot(const std::string& folder) {
  if (!has_snapshot(folder)) return {};
  return with_manifest(folder + "/" + kSnapshotFile, [](const Json& manifest) {
    return SnapshotFacts{.num_servers = manifest.value("servers", 0),
                         .log_goes_on = manifest.value("log", int64_t{0})};
  });
}

std::vector<SavedShard> read_snapshots(const std::string& folder) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (has_snapshot(entry.path().string())) folders.push_back(entry.path().string());
  if (folders.empty()) fail(Code::kNotFound, "there is no snapshot in ", folder);
  std::ranges::sort(folders);
  require_all_servers(folder, folders);
  std::vector<SavedShard> all;
  std::map<std::string, std::vector<SavedRows>> rows;
  for (const std::string& one : folders)
    for (SavedShard& saved : read_snapshot(one)) {
      const ShardSpec& spec = saved.about.spec;
      rows[spec.variable].push_back({spec.begin, spec.rows, one});
      all.push_back(std::move(saved));
    }
  for (auto& [variable, ranges] : rows) require_once(variable, std::move(ranges));
  return all;
}

bool remove_snapshot(const std::string& folder) {
  std::error_code ignored;
  // First what makes the other files a snapshot.
  if (!std::filesystem::remove(folder + "/" + kSnapshotFile, ignored)) return false;
  std::filesystem::remove(folder + "/" + kPreviousFile, ignored);
  remove_others(folder, {});
  std::filesystem::remove(folder, ignored);
  return true;
}

}  // namespace cohort::parameter_server
