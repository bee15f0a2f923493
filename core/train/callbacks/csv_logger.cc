#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <set>

#include "core/base/file.h"
#include "core/train/callbacks.h"
#include "core/train/callbacks/state.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class CsvLoggerCallback : public Callback {
 public:
  CsvLoggerCallback(std::string path, const CsvLoggerOptions& options)
      : path_(std::move(path)), options_(options) {}

  void on_train_begin(Training& training) override {
    if (!training.model().strategy().is_chief()) return;
    columns_.clear();
    create_folders(std::filesystem::path(path_).parent_path().string());
    std::error_code missing;
    if (std::filesystem::is_directory(path_, missing))
      invalid("CSVLogger: cannot write to ", path_, ": it is a folder");
    // It is still open, or broken, where training has ended with an error.
    file_.close();
    file_.clear();
    file_.open(path_, std::ios::app);
    if (!file_) fail(Code::kPermissionDenied, "CSVLogger: cannot write to ", path_);
    file_ << std::setprecision(std::numeric_limits<double>::max_digits10);
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    if (!training.model().strategy().is_chief()) return;
    if (columns_.empty()) begin_table(training, logs);
    file_ << training.epoch();
    for (const std::string& column : columns_) {
      file_ << options_.separator;
      if (const auto value = logs.find(column); value != logs.end())
        file_ << value->second;
      else
        file_ << "NA";
    }
    file_ << std::endl;
    if (!file_) fail(Code::kResourceExhausted, "CSVLogger: cannot write to ", path_);
  }

  void on_train_end(Training&) override { file_.close(); }

  std::string state_name() const override { return "CSVLogger"; }
  CallbackState state() const override {
    if (columns_.empty()) return {};
    CallbackState state{{kLength, Tensor::scalar(length())}};
    std::vector<Tensor> columns;
    for (const std::string& column : columns_) columns.push_back(tensor_of(column));
    add_list(state, kColumns, columns);
    return state;
  }
  void restore(const CallbackState& state) override {
    const int64_t saved = integer_in(state, kLength).value_or(0);
    // The chief's file alone is open. A shorter one is another one.
    if (!file_.is_open() || saved < 0 || length() < saved) return;
    cut(saved);
    for (const Tensor& column : list_in(state, kColumns)) columns_.push_back(text_of(column));
  }

 private:
  static constexpr const char* kLength = "length";
  static constexpr const char* kColumns = "columns";

  int64_t length() const {
    std::error_code gone;
    const auto bytes = std::filesystem::file_size(path_, gone);
    return gone ? 0 : static_cast<int64_t>(bytes);
  }

  void cut(int64_t length) const {
    if (length == this->length()) return;  // a terminal, for one, cannot be cut
    std::error_code error;
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(length), error);
    if (error)
      fail(Code::kPermissionDenied, "CSVLogger: cannot shorten ", path_, ": ", error.message());
  }

  // Of validation, too, which the first epoch need not have.
  static std::vector<std::string> columns_of(const Training& training, const Logs& logs) {
    std::set<std::string> names;
    for (const auto& [name, value] : logs) names.insert(name);
    if (training.options().validation_data)
      for (const auto& [name, value] : training.logs()) names.insert(str(kValidationPrefix, name));
    return {names.begin(), names.end()};
  }

  // What the file holds of before stays until there is a line, or a backup to go on from.
  void begin_table(const Training& training, const Logs& logs) {
    if (!options_.append) cut(0);
    columns_ = columns_of(training, logs);
    if (length() > 0) return;
    file_ << "epoch";
    for (const std::string& column : columns_) file_ << options_.separator << column;
    file_ << '\n';
  }

  std::string path_;
  CsvLoggerOptions options_;
  std::vector<std::string> columns_;
  std::ofstream file_;
};

}  // namespace

CallbackPtr CSVLogger(std::string path, const CsvLoggerOptions& options) {
  return std::make_shared<CsvLoggerCallback>(std::move(path), options);
}

}  // namespace cohort::callbacks
