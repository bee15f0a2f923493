#include "core/data/csv_records.h"

#include <utility>

#include "core/base/error.h"

namespace cohort::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

CsvRecords::CsvRecords(std::string_view text, std::string path, char delimiter)
    : text_(text), path_(std::move(path)), delimiter_(delimiter) {
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  if (text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF"))
    fail_at(1, 0, "the file is UTF-16; save it as UTF-8");
}

void CsvRecords::fail_at(int64_t line, size_t offset, std::string_view problem) const {
  fail(Code::kDataLoss, path_, ":", line, ": byte ", offset, ": ", problem);
}

bool CsvRecords::at_line_end() const {
  return at_ == text_.size() || text_[at_] == '\n' || text_[at_] == '\r';
}

void CsvRecords::skip_line_end() {
  if (at_ == text_.size()) return;
  at_ += text_.substr(at_).starts_with("\r\n") ? 2 : 1;
  ++line_;
}

bool CsvRecords::next(std::vector<std::string>& fields) {
  while (at_ < text_.size() && at_line_end()) skip_line_end();
  if (at_ == text_.size()) return false;
  record_line_ = line_;
  offsets_.clear();
  size_t count = 0;
  do {
    if (count > 0) ++at_;  // the delimiter
    if (count == fields.size()) fields.emplace_back();
    offsets_.push_back(at_);
    read_field(fields[count++]);
  } while (!at_line_end());
  skip_line_end();
  fields.resize(count);
  return true;
}

// Leaves off at a delimiter or the end of the line.
void CsvRecords::read_field(std::string& field) {
  field.clear();
  if (at_ < text_.size() && text_[at_] == '"') return read_quoted(field);
  while (!at_line_end() && text_[at_] != delimiter_) field += text_[at_++];
}

void CsvRecords::read_quoted(std::string& field) {
  const int64_t first_line = line_;
  const size_t first = at_++;
  while (true) {
    if (at_ == text_.size())
      fail_at(first_line, first, "the quoted field that begins here does not end");
    const char c = text_[at_++];
    const bool doubled = c == '"' && at_ < text_.size() && text_[at_] == '"';
    if (c == '"' && !doubled) break;
    if (doubled) ++at_;
    if (c == '\n' || (c == '\r' && !text_.substr(at_).starts_with('\n'))) ++line_;
    field += c;
  }
  if (!at_line_end() && text_[at_] != delimiter_)
    fail_at(line_, at_, "there is text after the closing quote of a field");
}

}  // namespace cohort::data
