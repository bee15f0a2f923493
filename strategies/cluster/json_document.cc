#include "strategies/cluster/json_document.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "core/base/error.h"
#include "core/base/watched_json.h"
#include "strategies/cluster/parsing.h"

namespace cohort::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxDepth = 8;
constexpr std::string_view kExample =
    R"({"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}})";
constexpr std::string_view kJobExample = R"("worker": ["host0:2222", "host1:2222"])";

std::string position(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return str("line ", line, ", column ", before.size() - line_begin + 1);
}

// At most `longest` bytes of it.
std::string shortened(const std::string& text, size_t longest) {
  return text.size() > longest ? text.substr(0, longest) + "..." : text;
}

// The parser's own words, without its prefix "[...] parse error at line ...: ".
std::string reason(const std::string& what) {
  const size_t prefix = what.find("column ");
  const size_t begin = prefix == std::string::npos ? what.find("] ") : what.find(": ", prefix);
  const std::string words = begin == std::string::npos ? what : what.substr(begin + 2);
  return escaped(shortened(words, 160));
}

// Watches the parser: limits the nesting and refuses a key that an object already has, and numbers
// that no document holds.
class Watch final : public JsonWatch {
 public:
  explicit Watch(const std::string& name) : name_(name) {}

  void open(bool /*is_object*/) override {
    if (open_.size() == kMaxDepth) {
      refuse(path(), str("more than ", kMaxDepth, " levels of nesting"), "3 levels", kExample);
    }
    open_.emplace_back();
  }
  void close() override { open_.pop_back(); }
  void key(const std::string& name) override {
    open_.back().key = name;
    if (!open_.back().keys.insert(name).second) {
      refuse(path(), "this key twice", "each key of an object once", kExample);
    }
  }
  void overflow(const std::string& number) override {
    refuse(path(), shortened(number, 60), "a number nearer to 0", kExample);
  }

 private:
  struct Container {
    std::string key;  // the last one
    std::set<std::string> keys;
  };

  std::string path() const {
    std::string path = name_;
    for (const Container& container : open_) {
      if (!container.keys.empty()) path = path_of(path, container.key);
    }
    return path;
  }

  const std::string& name_;
  std::vector<Container> open_;
};

int parse_index(const std::string& key, const std::string& path) {
  constexpr std::string_view kSparse = R"("worker": {"0": "host0:2222", "3": "host3:2222"})";
  const auto index = parse_integer(key, path, {.min = 0, .max = kMaxTasks - 1}, kSparse);
  if (key != std::to_string(index))
    refuse(path, quote(key), str("the key \"", index, '"'), kSparse);
  return static_cast<int>(index);
}

ClusterSpec::Task parse_task(const std::string& job, int index, const Json& address,
                             const std::string& path) {
  if (!address.is_string()) refuse(path, found(address), "an address as text", kJobExample);
  return {job, index, Address::parse(address.get_ref<const std::string&>(), path), path};
}

}  // namespace

Json parse_object(std::string_view text, const std::string& name) {
  if (text.size() > kMaxBytes) {
    refuse(name, str(text.size(), " bytes"), str("at most ", kMaxBytes), kExample);
  }
  Json document;
  try {
    Watch watch(name);
    document = parse_watched(text, watch);
  } catch (const Json::parse_error& error) {
    refuse(str(name, ", ", position(text, error.byte)), str("no JSON (", reason(error.what()), ")"),
           "an object", kExample);
  } catch (const Json::exception& error) {
    refuse(name, str("no JSON (", reason(error.what()), ")"), "an object", kExample);
  }
  if (!document.is_object()) refuse(name, found(document), "an object", kExample);
  return document;
}

std::string path_of(const std::string& path, const std::string& key) {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  return plain ? str(path, ".", shortened(key, 60)) : str(path, "[", quote(key), "]");
}

std::string found(const Json& element) {
  if (element.is_string()) return quote(element.get_ref<const std::string&>());
  if (element.is_array()) return str("a list of ", element.size());
  if (element.is_object()) return "an object";
  return element.dump();
}

std::vector<ClusterSpec::Task> parse_tasks(const Json& jobs, const std::string& path) {
  if (!jobs.is_object()) {
    refuse(path, found(jobs), "an object from job to addresses", str('{', kJobExample, '}'));
  }
  std::vector<ClusterSpec::Task> tasks;
  for (const auto& [job, addresses] : jobs.items()) {
    const std::string here = path_of(path, job);
    if (!is_job_name(job)) {
      refuse(here, str("the job ", quote(job)), "chief, worker, ps or evaluator", kJobExample);
    }
    if (!addresses.is_array() && !addresses.is_object()) {
      refuse(here, found(addresses),
             "a list of addresses, or an object from task number to address", kJobExample);
    }
    for (const auto& [key, address] : addresses.items()) {
      const bool list = addresses.is_array();
      const std::string place = list ? str(here, "[", key, "]") : path_of(here, key);
      tasks.push_back(parse_task(job, parse_index(key, place), address, place));
    }
  }
  return tasks;
}

}  // namespace cohort::config
