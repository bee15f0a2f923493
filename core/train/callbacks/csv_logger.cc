#include <cctype>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "core/base/file.h"
#include "core/train/appended_file.h"
#include "core/train/callbacks.h"
#include "core/train/callbacks/folder.h"
#include "core/train/callbacks/state.h"
#include "core/train/callbacks/writes.h"
#include "core/train/training.h"
#include "core/train/try_write.h"

namespace cohort::callbacks {
namespace {

// A table's separator is none of what its numbers and quoted names are written with.
void require_separator(char separator) {
  const bool is_of_fields = std::isalnum(static_cast<unsigned char>(separator)) != 0;
  if (is_of_fields || std::string_view("\"\r\n.+-").find(separator) != std::string_view::npos)
    invalid("CSVLogger: the separator, character ", static_cast<int>(separator),
            ", is a letter, a digit, a sign, a point, a quote or a line end");
}

class CsvLoggerCallback : public Callback {
 public:
  CsvLoggerCallback(std::string path, const CsvLoggerOptions& options)
      : path_(std::move(path)), options_(options), writes_(kName) {}

  void on_train_begin(Training& training) override {
    writes_.begin();
    columns_.clear();
    unwritten_.clear();
    cut_to_.reset();
    file_.reset();
    if (!training.model().strategy().is_chief()) return;
    try {
      create_folders(std::filesystem::path(path_).parent_path().string());
      file_.emplace(path_);
    } catch (const Error& error) {
      throw error.with_context(kName);
    }
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    if (!training.model().strategy().is_chief()) return;
    if (columns_.empty()) begin_table(training, logs);
    unwritten_ += str(training.epoch());
    for (const std::string& column : columns_) {
      const auto value = logs.find(column);
      unwritten_ += options_.separator;
      unwritten_ += value == logs.end() ? "NA" : str(std::setprecision(kAllDigits), value->second);
    }
    unwritten_ += '\n';
    write(training);
  }

  void on_train_end(Training& training) override {
    if (!unwritten_.empty()) write(training);
    writes_.end(training);
  }

  std::string state_name() const override { return kName; }
  CallbackState state() const override {
    if (!file_) return {};
    CallbackState state{{kLength, Tensor::scalar(length())}};
    if (!unwritten_.empty()) state[kUnwritten] = tensor_of(unwritten_);
    std::vector<Tensor> columns;
    for (const std::string& column : columns_) columns.push_back(tensor_of(column));
    add_list(state, kColumns, columns);
    return state;
  }
  void restore(const CallbackState& state) override {
    const int64_t saved = integer_in(state, kLength).value_or(0);
    // The chief's file alone is open. A shorter one is another one.
    if (!file_ || saved < 0 || file_->length() < saved) return;
    cut_to_ = saved;
    unwritten_.clear();
    columns_.clear();
    if (const auto found = state.find(kUnwritten); found != state.end())
      unwritten_ = text_of(found->second);
    for (const Tensor& column : list_in(state, kColumns)) columns_.push_back(text_of(column));
  }

 private:
  static constexpr auto kAllDigits = std::numeric_limits<double>::max_digits10;
  static constexpr const char* kName = "CSVLogger";
  static constexpr const char* kLength = "length";
  static constexpr const char* kUnwritten = "unwritten";
  static constexpr const char* kColumns = "columns";

  // Once it is cut.
  int64_t length() const { return cut_to_ ? *cut_to_ : file_->length(); }

  // Of validation, too, which the first epoch need not have.
  static std::vector<std::string> columns_of(const Training& training, const Logs& logs) {
    std::set<std::string> names;
    for (const auto& [name, value] : logs) names.insert(name);
    if (training.options().validation_data)
      for (const auto& [name, value] : training.logs()) names.insert(str(kValidationPrefix, name));
    return {names.begin(), names.end()};
  }

  // A name as a field of RFC 4180.
  std::string field(const std::string& name) const {
    if (name.find_first_of(std::string("\"\r\n") + options_.separator) == std::string::npos)
      return name;
    std::string quoted = "\"";
    for (const char c : name) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + '"';
  }

  void begin_table(const Training& training, const Logs& logs) {
    if (!options_.append) cut_to_ = 0;
    columns_ = columns_of(training, logs);
    if (length() > 0) return;
    unwritten_ = "epoch";
    for (const std::string& column : columns_) unwritten_ += options_.separator + field(column);
    unwritten_ += '\n';
  }

  void write(Training& training) {
    const auto refusal = try_write([&] {
      if (cut_to_) file_->cut(*cut_to_);
      cut_to_.reset();
      file_->append(unwritten_);
    });
    if (!refusal) unwritten_.clear();
    writes_.record(training, path_, refusal);
  }

  std::string path_;
  CsvLoggerOptions options_;
  Writes writes_;
  std::vector<std::string> columns_;
  std::optional<AppendedFile> file_;  // of the chief; stays open for a backup after the last line
  // Where the next line goes in what the file holds of before, which stays until there is one.
  std::optional<int64_t> cut_to_;
  std::string unwritten_;  // lines that have been refused
};

}  // namespace

CallbackPtr CSVLogger(std::string path, const CsvLoggerOptions& options) {
  require_file_name("CSVLogger", path);
  require_separator(options.separator);
  return std::make_shared<CsvLoggerCallback>(std::move(path), options);
}

}  // namespace cohort::callbacks
