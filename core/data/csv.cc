#include "core/data/csv.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <locale>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "core/base/comma_separated.h"
#include "core/base/notice.h"
#include "core/base/quote.h"
#include "core/data/csv_records.h"
#include "core/data/data_file.h"
#include "core/data/table.h"
#include "core/tensor/half.h"

namespace cohort::data {
namespace {

// A field as a message can show it: short, and without control characters.
std::string shown(std::string_view field) {
  constexpr size_t kMost = 40;
  std::string out = "\"";
  for (const char c : field.substr(0, kMost)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (field.size() > kMost ? "...\"" : "\"");
}

std::string_view trimmed(std::string_view field) {
  const size_t first = field.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return field.substr(first, field.find_last_not_of(" \t") - first + 1);
}

// What is too small for a float64 is 0; what is too large is none.
std::optional<double> rounded_to_zero(std::string_view digits) {
  std::istringstream in{std::string(digits)};
  in.imbue(std::locale::classic());
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// A field as std::from_chars reads it.
std::string_view digits_of(std::string_view field) {
  std::string_view digits = trimmed(field);
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  return digits;
}

// What a whole field says as an int64, if it does.
std::optional<int64_t> integer_of(std::string_view field) {
  const std::string_view digits = digits_of(field);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error != std::errc()) return std::nullopt;
  return value;
}

// What a whole field says as a number, if it does.
std::optional<double> number_of(std::string_view field) {
  const std::string_view digits = digits_of(field);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return rounded_to_zero(digits);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// Whether a whole field that is no number to number_of() is one beyond float64.
bool is_too_large(std::string_view field) {
  const std::string_view digits = digits_of(field);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return end == digits.data() + digits.size() && error == std::errc::result_out_of_range;
}

// Whether a header may be a record that was meant to be read: it has numbers, and not those by
// which tables without names number their columns.
bool looks_like_record(const std::vector<std::string>& names) {
  bool counts = true;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::optional<double> value = number_of(names[i]);
    if (!value) return false;
    counts &= *value == static_cast<double>(i);
  }
  return !counts;
}

// Below it the integers of a float64 are exact.
constexpr double kExact = 0x1p53;

template <typename T>
bool is_within(double value) {
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

// Whether a number becomes infinite as a T.
template <typename T>
bool overflows(double value) {
  return std::isfinite(value) && !std::isfinite(static_cast<float>(T(static_cast<float>(value))));
}

bool fits(double value, DType dtype) {
  if (dtype == DType::kFloat32) return !overflows<float>(value);
  if (dtype == DType::kBFloat16) return !overflows<bfloat16>(value);
  if (dtype == DType::kFloat16) return !overflows<float16>(value);
  if (is_floating(dtype)) return true;
  if (value != std::trunc(value)) return false;
  if (dtype == DType::kInt32) return is_within<int32_t>(value);
  if (dtype == DType::kUInt8) return is_within<uint8_t>(value);
  if (dtype == DType::kBool) return is_within<bool>(value);
  return std::abs(value) < kExact;
}

// Numbers of a file that become a tensor of `dtype`.
class Numbers {
 public:
  explicit Numbers(DType dtype) : dtype_(dtype) {}

  // Adds what a field says, or returns what is wrong with it.
  std::optional<std::string> add(std::string_view field) {
    const auto integer = dtype_ == DType::kInt64 ? integer_of(field) : std::nullopt;
    const auto value = integer ? static_cast<double>(*integer) : number_of(field);
    if (!value && !is_too_large(field)) return "is not a number";
    if (!value || (!integer && !fits(*value, dtype_))) return str("is not a value of ", dtype_);
    if (integer)
      integers_.push_back(*integer);
    else
      add_value(*value);
    return std::nullopt;
  }
  // REQUIRES: it fits the dtype.
  void add_value(double value) {
    if (dtype_ == DType::kInt64)
      integers_.push_back(static_cast<int64_t>(value));
    else
      values_.push_back(value);
  }

  // REQUIRES: it is not empty.
  double last() const {
    return integers_.empty() ? values_.back() : static_cast<double>(integers_.back());
  }
  Tensor tensor(const Shape& shape) const {
    if (dtype_ == DType::kInt64) return Tensor::from(integers_, shape);
    return Tensor::from(values_, shape).cast(dtype_);
  }

 private:
  DType dtype_;
  std::vector<double> values_;     // of all dtypes but int64
  std::vector<int64_t> integers_;  // of int64, which float64 does not hold
};

class Reader {
 public:
  Reader(const std::string& path, const CsvOptions& options)
      : path_(path),
        options_(options),
        text_(DataFile(path).read_rest()),
        records_(text_, path, options.delimiter),
        features_(options.dtype),
        labels_(options.label_dtype) {}

  Dataset read() {
    std::vector<std::string> fields;
    bool more = records_.next(fields);
    if (!more) fail(Code::kDataLoss, path_, ":1: byte 0: the file is empty");
    columns_ = fields.size();
    first_line_ = records_.line();
    if (options_.has_header) names_ = fields;
    choose_columns();
    if (looks_like_record(names_))
      print_notice(str("warning: ", place(0), "only numbers are in what is taken for the header, ",
                       "and not read; where it is a record, say has_header = false\n"));
    if (options_.has_header) more = records_.next(fields);
    for (; more; more = records_.next(fields)) add(fields);
    if (rows_ == 0)
      fail(Code::kDataLoss, path_, ":", first_line_, ": byte ", text_.size(),
           ": there are no records after the header");
    return to_dataset();
  }

 private:
  void choose_columns() {
    if (!options_.label_column.empty()) label_column_ = find_column(options_.label_column);
    for (const std::string& wanted : options_.feature_columns)
      feature_columns_.push_back(find_column(wanted));
    if (!options_.feature_columns.empty()) return;
    for (size_t i = 0; i < columns_; ++i)
      if (i != label_column_) feature_columns_.push_back(i);
  }

  // That of a name, or else of a number.
  size_t find_column(const std::string& wanted) const {
    std::optional<size_t> found;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (trimmed(names_[i]) != wanted) continue;
      if (found)
        invalid(place(0), "columns ", *found + 1, " and ", i + 1, " are both called ",
                shown(wanted), "; give the number of one, from 0");
      found = i;
    }
    if (found) return *found;
    int64_t number = 0;
    const char* end = wanted.data() + wanted.size();
    const auto [stop, error] = std::from_chars(wanted.data(), end, number);
    const int64_t columns = static_cast<int64_t>(columns_);
    if (error != std::errc() || stop != end || number < -columns || number >= columns)
      fail(Code::kNotFound, place(0), "there is no column ", shown(wanted), " among the ", columns_,
           list_of_names(), "; give a name of the header, or a number from ", -columns, " to ",
           columns - 1);
    return static_cast<size_t>(number < 0 ? number + columns : number);
  }

  // " ("a", "b" and 3 more)"; empty without a header.
  std::string list_of_names() const {
    constexpr size_t kMost = 10;
    if (names_.empty()) return "";
    const auto in_words = [](const std::string& name) { return shown(trimmed(name)); };
    return str(" (", comma_separated(names_, in_words, kMost), ")");
  }

  void add(const std::vector<std::string>& fields) {
    if (fields.size() != columns_)
      fail(Code::kDataLoss, place(0), fields.size(), " fields where line ", first_line_, " has ",
           columns_);
    for (const size_t column : feature_columns_) {
      if (options_.empty_value && trimmed(fields[column]).empty())
        features_.add_value(*options_.empty_value);
      else
        add(fields[column], column, features_);
    }
    if (label_column_) {
      add(fields[*label_column_], *label_column_, labels_);
      check_label(fields[*label_column_]);
    }
    ++rows_;
  }

  void add(const std::string& field, size_t column, Numbers& numbers) const {
    if (const auto fault = numbers.add(field)) fail_field(column, str(shown(field), " ", *fault));
  }

  // The last one, of `field`.
  void check_label(const std::string& field) const {
    const double value = labels_.last();
    if (options_.num_classes && !(value >= 0 && value < static_cast<double>(*options_.num_classes)))
      fail_field(*label_column_, str("label ", shown(field), " is out of range; there are ",
                                     *options_.num_classes, " classes"));
  }

  [[noreturn]] void fail_field(size_t column, std::string_view problem) const {
    const std::string name = names_.empty() ? "" : str(" (", shown(names_[column]), ")");
    fail(Code::kDataLoss, place(column), "column ", column + 1, name, ": ", problem,
         hint_of_delimiter());
  }

  // For files of programs that separate by something else.
  std::string hint_of_delimiter() const {
    if (columns_ > 1 || names_.empty()) return "";
    const size_t other = names_[0].find_first_of(",;\t");
    if (other == std::string::npos) return "";
    return str("; is the delimiter ", quote(names_[0].substr(other, 1)),
               " (CsvOptions::delimiter)?");
  }

  // Where a field of the last record is, as errors begin.
  std::string place(size_t field) const {
    return str(path_, ":", records_.line(), ": byte ", records_.offset(field), ": ");
  }

  Dataset to_dataset() const {
    std::vector<Table::Column> columns;
    const auto width = static_cast<int64_t>(feature_columns_.size());
    columns.push_back({"features", features_.tensor({rows_, width}), std::nullopt});
    if (label_column_) columns.push_back({"label", labels_.tensor({rows_}), std::nullopt});
    return from_table(std::make_shared<Table>(std::move(columns)));
  }

  const std::string& path_;
  const CsvOptions& options_;
  std::string text_;
  CsvRecords records_;
  std::vector<std::string> names_;
  size_t columns_ = 0;
  std::optional<size_t> label_column_;
  std::vector<size_t> feature_columns_;
  int64_t first_line_ = 1, rows_ = 0;
  Numbers features_, labels_;
};

}  // namespace

Dataset csv(const std::string& path, CsvOptions options) {
  if (options.delimiter == '"' || options.delimiter == '\n' || options.delimiter == '\r')
    invalid("csv(): a quote or a line end cannot be the delimiter");
  if (options.empty_value && !fits(*options.empty_value, options.dtype))
    invalid("csv(): the empty_value ", *options.empty_value, " is not a value of ", options.dtype);
  return Reader(path, options).read();
}

}  // namespace cohort::data
