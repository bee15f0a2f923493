#include "core/train/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/file.h"
#include "core/base/quote.h"
#include "core/base/watched_json.h"
#include "core/tensor/bool_bytes.h"

namespace cohort {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

constexpr uint64_t kLengthBytes = sizeof(uint64_t);
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr int kMaxListLength = 64;                 // of the axes of tensors that any program writes
constexpr size_t kAlignment = 8;                   // of the data, by padding the header with spaces

struct FileDType {
  std::string_view name;
  size_t bytes;  // of an element
  std::optional<DType> dtype = {};
};
constexpr FileDType kDTypes[] = {
    {"F32", 4, DType::kFloat32},
    {"F64", 8, DType::kFloat64},
    {"BF16", 2, DType::kBFloat16},
    {"F16", 2, DType::kFloat16},
    {"I32", 4, DType::kInt32},
    {"I64", 8, DType::kInt64},
    {"U8", 1, DType::kUInt8},
    {"BOOL", 1, DType::kBool},
    {"I8", 1},
    {"I16", 2},
    {"U16", 2},
    {"U32", 4},
    {"U64", 8},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E8M0", 1},
    {"C64", 8},
};

// The key of the metadata among those of tensors.
constexpr std::string_view kMetadataKey = "__metadata__";
// The key of the metadata's own check, and of those of tensors with their names after a colon.
constexpr std::string_view kCheckKey = "crc32c";
// Checks that do not fit are no damage where a program has copied them with the other metadata.
constexpr std::string_view kIfEdited =
    "; where another program has edited the file, remove the metadata crc32c and crc32c:* from it, "
    "which are of what was there before";

std::string check_key(const std::string& tensor) { return str(kCheckKey, ":", tensor); }

bool is_check_key(const std::string& key) {
  return key == kCheckKey || key.starts_with(check_key(""));
}

std::string in_hex(uint32_t check) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", check);
  return text;
}

std::string check_of(const Tensor& tensor) {
  return in_hex(crc32c({static_cast<const char*>(tensor.raw()), tensor.bytes()}));
}

std::string check_of(const std::map<std::string, std::string>& metadata) {
  uint32_t check = 0;
  for (const auto& [key, value] : metadata)
    for (const std::string& text : {key, value})
      check = crc32c({text.c_str(), text.size() + 1}, check);
  return in_hex(check);
}

bool is_utf8(const std::string& text) {
  try {
    Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

// The metadata of a file with the checks of all that is in it.
std::map<std::string, std::string> with_checks(const Safetensors& content) {
  std::map<std::string, std::string> all = content.metadata;
  const std::string check = check_of(all);
  for (const auto& [key, value] : content.metadata)
    if (is_check_key(key)) invalid("metadata must not have the name \"", key, "\", of a check");
  for (const auto& [name, tensor] : content.tensors) {
    if (name == kMetadataKey)
      invalid("a tensor must not have the name \"", name, "\", of the metadata");
    if (!tensor.defined()) invalid("tensor \"", name, "\" has no value; it was never assigned");
    all[check_key(name)] = check_of(tensor);
  }
  for (const auto& [name, what] : content.unsupported)
    invalid("cannot write the tensor \"", name, "\", ", what, ", whose dtype is not supported");
  all[std::string(kCheckKey)] = check;
  return all;
}

std::string_view name_of(DType dtype) {
  return std::ranges::find(kDTypes, std::optional(dtype), &FileDType::dtype)->name;
}

// Where a tensor lies in the data part of a file.
struct Entry {
  std::string name;
  TensorSpec spec;  // of its bytes, where it is not supported
  uint64_t begin = 0, end = 0;
  std::string unsupported = {};  // what it is; "" where it is supported
};

// What the document of a header would hide, or be many times the header's size of.
class HeaderWatch final : public JsonWatch {
 public:
  explicit HeaderWatch(std::function<void(const std::string&)> refuse)
      : refuse_(std::move(refuse)) {}

  void open(bool is_object) override {
    if (depth_ == 0 && !is_object) refuse_("the header is not a JSON object");
    if (depth_ < 2 ? !is_object : is_object || depth_ > 2)
      refuse_("the header has lists or objects where none belong");
    if (depth_ < 2) names_[depth_].clear();
    ++depth_;
    length_ = 0;
  }
  void close() override { --depth_; }
  void key(const std::string& name) override {
    if (!names_[depth_ - 1].insert(name).second)
      refuse_(str("the header has \"", name, "\" twice"));
  }
  void value() override {
    if (depth_ == 3 && ++length_ > kMaxListLength)
      refuse_(str("the header has a list of more than ", kMaxListLength, " elements"));
  }

 private:
  const std::function<void(const std::string&)> refuse_;
  std::unordered_set<std::string> names_[2];  // of the open objects' keys so far
  int depth_ = 0;
  int length_ = 0;  // of the open list so far
};

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}

  Safetensors read() {
    const Contents contents = read_contents();
    const auto& [entries, metadata, checks] = contents;
    Safetensors content{.tensors = {}, .metadata = metadata};
    for (const Entry& entry : entries) {
      Tensor tensor = read_tensor(entry);
      if (!checks.empty()) verify(entry, tensor, checks);
      if (!entry.unsupported.empty()) {
        content.unsupported[entry.name] = entry.unsupported;
        continue;
      }
      normalize_bools(tensor);  // behind the check of the bytes
      content.tensors[entry.name] = std::move(tensor);
    }
    check_metadata(contents);
    return content;
  }

  std::map<std::string, std::string> read_strings() {
    Contents contents = read_contents();
    check_metadata(contents);
    return std::move(contents.metadata);
  }

 private:
  // What the header tells.
  struct Contents {
    std::vector<Entry> entries = {};  // in the order of their bytes
    std::map<std::string, std::string> metadata = {}, checks = {};
  };

  Contents read_contents() {
    const Json header = read_header();
    Contents contents;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadataKey)
        contents.metadata = read_metadata(value);
      else
        contents.entries.push_back(read_entry(name, value));
    }
    std::ranges::sort(contents.entries, {},
                      [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
    check_layout(contents.entries);
    contents.checks = take_checks(contents.metadata);
    return contents;
  }

  template <typename... Parts>
  [[noreturn]] void corrupt(uint64_t offset, const Parts&... parts) const {
    fail(Code::kDataLoss, file_.path(), ": at byte ", offset, ": ", parts...);
  }

  void read_exactly(void* to, uint64_t bytes, uint64_t offset) {
    if (file_.read(to, bytes) != bytes)
      corrupt(offset, "the file has become shorter while being read");
  }

  Json read_header() {
    uint64_t length = 0;
    if (file_.size() < kLengthBytes) corrupt(0, "too short for a safetensors file");
    read_exactly(&length, kLengthBytes, 0);
    if (length > kMaxHeaderBytes || length > file_.size() - kLengthBytes) {
      corrupt(0, "a header of ", length, " bytes does not fit in a file of ", file_.size());
    }
    data_offset_ = kLengthBytes + length;
    std::string text(length, '\0');
    read_exactly(text.data(), length, kLengthBytes);
    // The parser would take it for the end.
    if (const size_t zero = text.find('\0'); zero != std::string::npos)
      corrupt(kLengthBytes + zero, "a zero byte in the header");
    Json header = parse(text);
    if (!header.is_object()) corrupt(kLengthBytes, "the header is not a JSON object");
    return header;
  }

  Json parse(const std::string& text) const {
    HeaderWatch watch([&](const std::string& what) { corrupt(kLengthBytes, what); });
    try {
      return parse_watched(text, watch);
    } catch (const Json::parse_error& error) {
      corrupt(kLengthBytes + error.byte, "the header is not JSON: ", quote(error.what()));
    } catch (const Json::out_of_range& error) {
      corrupt(kLengthBytes, "the header has a number that is too large: ", quote(error.what()));
    }
  }

  std::map<std::string, std::string> read_metadata(const Json& value) const {
    try {
      return value.get<std::map<std::string, std::string>>();
    } catch (const Json::exception&) {
      corrupt(kLengthBytes, kMetadataKey, " is not a map of strings");
    }
  }

  std::vector<int64_t> read_integers(const std::string& name, const Json& entry,
                                     const char* key) const {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    std::vector<int64_t> integers;
    const auto fits = [](const Json& v) {
      return v.is_number_integer() && v >= 0 && v <= INT64_MAX;
    };
    if (!entry.is_object() || found == entry.end() || !found->is_array() ||
        !std::ranges::all_of(*found, fits)) {
      corrupt(kLengthBytes, "tensor \"", name, "\" has no list of non-negative integers \"", key,
              "\"");
    }
    return found->get<std::vector<int64_t>>();
  }

  const FileDType& read_dtype(const std::string& name, const Json& entry) const {
    const Json text = entry.value("dtype", Json());
    if (!text.is_string()) corrupt(kLengthBytes, "tensor \"", name, "\" has no dtype");
    const auto* found = std::ranges::find(kDTypes, text.get<std::string>(), &FileDType::name);
    if (found == std::end(kDTypes)) {
      fail(Code::kUnimplemented, file_.path(), ": tensor \"", name, "\" has the dtype ",
           text.dump(), ", which is not supported");
    }
    return *found;
  }

  Entry read_entry(const std::string& name, const Json& value) const {
    const auto dims = read_integers(name, value, "shape");
    const auto offsets = read_integers(name, value, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      corrupt(kLengthBytes, "tensor \"", name, "\" has no valid data_offsets");
    }
    const auto begin = static_cast<uint64_t>(offsets[0]), end = static_cast<uint64_t>(offsets[1]);
    if (end > file_.size() - data_offset_) {
      corrupt(data_offset_ + begin, "tensor \"", name, "\" ends ",
              end - (file_.size() - data_offset_), " bytes behind the end of the file");
    }
    const FileDType& type = read_dtype(name, value);
    const Shape shape = read_shape(name, dims);
    const auto elements = static_cast<uint64_t>(shape.num_elements());
    if ((end - begin) % type.bytes != 0 || (end - begin) / type.bytes != elements) {
      corrupt(data_offset_ + begin, "tensor \"", name, "\" is ", type.name, shape, " but has ",
              end - begin, " bytes");
    }
    if (type.dtype) return {name, {*type.dtype, shape}, begin, end};
    return {name, {DType::kUInt8, {offsets[1] - offsets[0]}}, begin, end, str(type.name, shape)};
  }

  Shape read_shape(const std::string& name, const std::vector<int64_t>& dims) const {
    if (dims.size() > Shape::kMaxRank) {
      fail(Code::kUnimplemented, file_.path(), ": tensor \"", name, "\" has rank ", dims.size(),
           ", above the limit of ", Shape::kMaxRank, "; reshape it to fewer axes");
    }
    try {
      return Shape(dims);
    } catch (const Error& error) {
      corrupt(kLengthBytes, "tensor \"", name, "\": ", error.message());
    }
  }

  // The format wants the tensors to cover the data without holes or overlaps.
  void check_layout(const std::vector<Entry>& sorted) const {
    uint64_t position = 0;
    for (const Entry& entry : sorted) {
      if (entry.begin != position) {
        corrupt(data_offset_ + position, "tensor \"", entry.name, "\" starts at data byte ",
                entry.begin, ", expected ", position);
      }
      position = entry.end;
    }
    if (const uint64_t end = data_offset_ + position; end != file_.size()) {
      corrupt(end, file_.size() - end, " bytes belong to no tensor");
    }
  }

  // Moves them out of the metadata. Files of other programs have none.
  static std::map<std::string, std::string> take_checks(
      std::map<std::string, std::string>& metadata) {
    std::map<std::string, std::string> checks;
    for (auto entry = metadata.begin(); entry != metadata.end();) {
      const auto next = std::next(entry);
      if (is_check_key(entry->first)) checks.insert(metadata.extract(entry));
      entry = next;
    }
    return checks;
  }

  void verify(const Entry& entry, const Tensor& tensor,
              const std::map<std::string, std::string>& checks) const {
    if (!entry.unsupported.empty())
      corrupt(kLengthBytes, "tensor \"", entry.name, "\" is ", entry.unsupported,
              ", of a dtype that is not written with checks", kIfEdited);
    const auto expected = checks.find(check_key(entry.name));
    if (expected == checks.end())
      corrupt(kLengthBytes, "tensor \"", entry.name, "\" has no check, and others have", kIfEdited);
    if (const std::string found = check_of(tensor); found != expected->second) {
      corrupt(data_offset_ + entry.begin, "tensor \"", entry.name, "\" of ", tensor.bytes(),
              " bytes is damaged: its CRC-32C is ", found, ", expected ", expected->second,
              kIfEdited);
    }
  }

  // What belongs to no tensor.
  void check_metadata(const Contents& contents) const {
    const auto& [entries, metadata, checks] = contents;
    if (checks.empty()) return;
    const auto expected = checks.find(std::string(kCheckKey));
    if (expected == checks.end() || expected->second != check_of(metadata) ||
        checks.size() != entries.size() + 1) {
      corrupt(kLengthBytes, "the metadata is damaged: it does not fit its CRC-32C", kIfEdited);
    }
  }

  Tensor read_tensor(const Entry& entry) {
    Tensor tensor(entry.spec.dtype, entry.spec.shape);
    read_exactly(tensor.raw(), tensor.bytes(), data_offset_ + entry.begin);
    return tensor;
  }

  InputFile file_;
  uint64_t data_offset_ = 0;
};

}  // namespace

void require_utf8(const Safetensors& content) {
  for (const auto& [name, tensor] : content.tensors)
    if (!is_utf8(name)) invalid("the name of the tensor ", quote(name), " is not UTF-8");
  for (const auto& [key, value] : content.metadata) {
    if (!is_utf8(key)) invalid("the key ", quote(key), " of the metadata is not UTF-8");
    if (!is_utf8(value))
      invalid("the value ", quote(value), " of the metadata \"", key, "\" is not UTF-8");
  }
}

void write_safetensors(const std::string& path, const Safetensors& content) {
  require_utf8(content);
  // Wide elements first, so that each tensor is aligned to its element size; then by name.
  std::vector<std::pair<std::string, Tensor>> tensors(content.tensors.begin(),
                                                      content.tensors.end());
  std::ranges::stable_sort(tensors, std::greater(),
                           [](const auto& named) { return dtype_size(named.second.dtype()); });
  Json header = Json::object();
  header[std::string(kMetadataKey)] = with_checks(content);
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", name_of(tensor.dtype())},
                    {"shape", tensor.shape().to_vector()},
                    {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  bytes.reserve(kLengthBytes + length + offset);
  bytes += text;
  for (const auto& [name, tensor] : tensors)
    bytes.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  write_file_atomically(path, bytes);
}

Safetensors read_safetensors(const std::string& path) { return Reader(path).read(); }

std::map<std::string, std::string> read_safetensors_metadata(const std::string& path) {
  return Reader(path).read_strings();
}

}  // namespace cohort
