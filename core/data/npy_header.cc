#include "core/data/npy_header.h"

#include <charconv>
#include <string>

namespace cohort::data {
namespace {

// Reads the one kind of Python literal that .npy headers are made of:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Parser {
 public:
  Parser(std::string_view text, const DataFile& file, uint64_t start)
      : text_(text), file_(file), start_(start) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const size_t at = at_;
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !has_type) {
        has_type = true;
        header.type = type();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.column_major = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.dims = shape();
      } else {
        fail(at, "an unexpected key in the header");
      }
      if (!accept(',') && peek() != '}') fail(at_, "expected , or } in the header");
    }
    if (peek() != '\0' || at_ != text_.size()) fail(at_, "there is text after the header's dict");
    if (!has_type || !has_order || !has_shape)
      fail(0, "the header has to have descr, fortran_order and shape");
    return header;
  }

 private:
  [[noreturn]] void fail(size_t at, std::string_view problem) const {
    file_.fail_at(start_ + at, problem);
  }
  // What is no mistake, but cannot be read.
  [[noreturn]] void refuse(size_t at, std::string_view problem) const {
    cohort::fail(Code::kUnimplemented, file_.path(), ": byte ", start_ + at, ": ", problem);
  }

  // The next character that is not white space; 0 at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(at_, str("expected ", wanted, " in the header"));
  }

  std::string_view quoted() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail(at_, "a string in the header does not end");
    const std::string_view value = text_.substr(at_, end - at_);
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    fail(at_, "expected True or False in the header");
  }

  std::vector<int64_t> shape() {
    std::vector<int64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(extent());
      if (dims.size() > Shape::kMaxRank)
        refuse(at_,
               str("the array's rank is above ", Shape::kMaxRank, "; reshape it to fewer axes"));
      if (!accept(',') && peek() != ')') fail(at_, "expected , or ) in the header");
    }
    return dims;
  }

  int64_t extent() {
    peek();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0)
      fail(at_, "expected an extent from 0 to 2^63 - 1 in the header");
    at_ = static_cast<size_t>(end - text_.data());
    if (text_.substr(at_).starts_with('L')) ++at_;  // a long of Python 2
    return value;
  }

  StoredType type() {
    const bool records = peek() == '[';
    const size_t at = at_;
    if (records) refuse(at, "the array holds records; only plain ones are read");
    const std::string_view descr = quoted();
    if (descr.size() < 2 || std::string_view("<>|=").find(descr[0]) == std::string_view::npos)
      fail(at, "not a type of NumPy's");
    StoredType type{.kind = descr[1], .bytes = 0, .big_endian = descr[0] == '>'};
    const auto [end, error] =
        std::from_chars(descr.data() + 2, descr.data() + descr.size(), type.bytes);
    const bool known =
        error == std::errc() && end == descr.data() + descr.size() && dtype_of_stored(type);
    if (!known) refuse(at, str("no dtype can hold elements of type ", descr.substr(0, 16)));
    return type;
  }

  std::string_view text_;
  const DataFile& file_;
  uint64_t start_;
  size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const DataFile& file, uint64_t start) {
  return Parser(text, file, start).parse();
}

}  // namespace cohort::data
