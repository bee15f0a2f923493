#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

// Splits CSV text into records. The path is for messages; the text is only referred to.
class CsvRecords {
 public:
  CsvRecords(std::string_view text, std::string path, char delimiter);

  // Reads the next record that is not a blank line into `fields`; false at the end. kDataLoss when
  // a quoted field does not end or goes on after its closing quote.
  bool next(std::vector<std::string>& fields);
  // The line, counted from 1, on which the last record began.
  int64_t line() const { return record_line_; }
  // The byte of the text at which a field of the last record began.
  size_t offset(size_t field) const { return offsets_[field]; }

 private:
  [[noreturn]] void fail_at(int64_t line, size_t offset, std::string_view problem) const;
  void read_field(std::string& field);
  void read_quoted(std::string& field);
  bool at_line_end() const;
  void skip_line_end();

  std::string_view text_;
  std::string path_;
  char delimiter_;
  size_t at_ = 0;
  int64_t line_ = 1, record_line_ = 1;
  std::vector<size_t> offsets_;
};

}  // namespace cohort::data
