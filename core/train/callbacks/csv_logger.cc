#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>

#include "core/base/file.h"
#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class CsvLoggerCallback : public Callback {
 public:
  CsvLoggerCallback(std::string path, const CsvLoggerOptions& options)
      : path_(std::move(path)), options_(options) {}

  void on_train_begin(Training& training) override {
    if (!training.model().strategy().is_chief()) return;
    std::error_code missing;
    needs_header_ = !options_.append || std::filesystem::file_size(path_, missing) == 0 || missing;
    columns_.clear();
    create_folders(std::filesystem::path(path_).parent_path().string());
    if (std::filesystem::is_directory(path_, missing))
      invalid("CSVLogger: cannot write to ", path_, ": it is a folder");
    // It is still open, or broken, where training has ended with an error.
    file_.close();
    file_.clear();
    file_.open(path_, options_.append ? std::ios::app : std::ios::trunc);
    if (!file_) fail(Code::kPermissionDenied, "CSVLogger: cannot write to ", path_);
    file_ << std::setprecision(std::numeric_limits<double>::max_digits10);
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    if (!training.model().strategy().is_chief()) return;
    if (columns_.empty()) choose_columns(logs);
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

 private:
  void choose_columns(const Logs& logs) {
    for (const auto& [name, value] : logs) columns_.push_back(name);
    if (!needs_header_) return;
    file_ << "epoch";
    for (const std::string& column : columns_) file_ << options_.separator << column;
    file_ << '\n';
  }

  std::string path_;
  CsvLoggerOptions options_;
  bool needs_header_ = true;
  std::vector<std::string> columns_;
  std::ofstream file_;
};

}  // namespace

CallbackPtr CSVLogger(std::string path, const CsvLoggerOptions& options) {
  return std::make_shared<CsvLoggerCallback>(std::move(path), options);
}

}  // namespace cohort::callbacks
