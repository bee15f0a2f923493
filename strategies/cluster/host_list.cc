#include "strategies/cluster/host_list.h"

#include <charconv>
#include <cstdint>

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

constexpr std::string_view kHostsExample = "n[01-04,07],m5";
constexpr std::string_view kCountsExample = "3(x2),1";

constexpr size_t kLongestName = 253;  // as DNS has it

std::string_view host_word(int64_t hosts) { return hosts == 1 ? " host" : " hosts"; }

// How many hosts there may be, and what says so.
struct Limit {
  int hosts;
  std::string_view source;

  // " (SLURM_STEP_NUM_TASKS)".
  std::string because() const { return source.empty() ? "" : str(" (", source, ")"); }
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A text being read from left to right.
class Cursor {
 public:
  Cursor(std::string_view text, std::string_view place, std::string_view example)
      : text_(text), place_(place), example_(example) {}

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  char next() { return text_[at_++]; }
  bool take(char c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }
  int column() const { return static_cast<int>(at_) + 1; }

  std::string_view take_digits() {
    const size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // The number that comes next, of at most 18 digits.
  int64_t take_number(std::string_view expected) {
    const int begin = column();
    const std::string_view digits = take_digits();
    if (digits.empty()) refuse_here(expected);
    if (digits.size() > 18) refuse_at(begin, quote(digits), "at most 18 digits");
    int64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }

  [[noreturn]] void refuse_here(std::string_view expected) const {
    refuse_at(column(), at_end() ? "the end" : quote(text_.substr(at_, 1)), expected);
  }
  [[noreturn]] void refuse_at(int column, std::string_view found, std::string_view expected) const {
    config::refuse(str(place_, "=", quote(text_), ", column ", column), found, expected, example_);
  }

 private:
  std::string_view text_, place_, example_;
  size_t at_ = 0;
};

struct Range {
  int64_t first, last;
  size_t width;  // digits, with zeros in front where the number is shorter
};

// A literal or a bracket.
struct Part {
  std::string literal;
  std::vector<Range> ranges;

  int64_t count() const {
    if (ranges.empty()) return 1;
    int64_t count = 0;
    for (const Range& range : ranges) count += range.last - range.first + 1;
    return count;
  }
};

struct Pattern {
  std::vector<Part> parts;
  int column;
};

Range parse_range(Cursor& cursor) {
  const int begin = cursor.column();
  const int64_t first = cursor.take_number("a number");
  const auto width = static_cast<size_t>(cursor.column() - begin);
  if (!cursor.take('-')) return {first, first, width};
  const int64_t last = cursor.take_number("the last number of the range");
  if (last < first) {
    cursor.refuse_at(begin, str("a range from ", first, " down to ", last), "an ascending range");
  }
  return {first, last, width};
}

[[noreturn]] void refuse_too_many(const Cursor& cursor, int column, const Limit& limit) {
  cursor.refuse_at(column, str("more than ", limit.hosts, host_word(limit.hosts)),
                   str("at most ", limit.hosts, limit.because()));
}

Part parse_bracket(Cursor& cursor, const Limit& limit) {
  Part part;
  int64_t count = 0;
  do {
    const int begin = cursor.column();
    part.ranges.push_back(parse_range(cursor));
    // What is no range has no number of hosts either.
    if (cursor.peek() != ',' && cursor.peek() != ']') cursor.refuse_here("',' or ']'");
    // Each is checked alone, so that the sum cannot overflow.
    const int64_t size = part.ranges.back().last - part.ranges.back().first + 1;
    if (size > limit.hosts || (count += size) > limit.hosts) refuse_too_many(cursor, begin, limit);
  } while (cursor.take(','));
  cursor.next();  // the bracket
  return part;
}

bool is_separator(char c) { return c == ',' || c == ' ' || c == '\t' || c == '\n'; }

Pattern parse_pattern(Cursor& cursor, const Limit& limit) {
  Pattern pattern{.column = cursor.column()};
  size_t length = 0;
  while (!cursor.at_end() && !is_separator(cursor.peek())) {
    if (cursor.take('[')) {
      pattern.parts.push_back(parse_bracket(cursor, limit));
      length += pattern.parts.back().ranges.front().width;
    } else if (cursor.peek() == ']') {
      cursor.refuse_here("a host name");
    } else {
      const bool after_bracket = pattern.parts.empty() || !pattern.parts.back().ranges.empty();
      if (after_bracket) pattern.parts.emplace_back();
      pattern.parts.back().literal += cursor.next();
      ++length;
    }
    if (length > kLongestName) {
      cursor.refuse_at(pattern.column, str("a name of more than ", kLongestName, " letters"),
                       "a host name");
    }
  }
  if (pattern.parts.empty()) cursor.refuse_here("a host name");
  return pattern;
}

// Past one comma or some blanks; false at the end of the list.
bool take_separator(Cursor& cursor) {
  const auto skip_blanks = [&] {
    while (is_separator(cursor.peek()) && cursor.peek() != ',') cursor.next();
  };
  skip_blanks();
  if (cursor.at_end()) return false;
  if (cursor.take(',')) skip_blanks();
  return true;
}

std::vector<Pattern> parse_patterns(Cursor cursor, const Limit& limit) {
  std::vector<Pattern> patterns;
  int64_t hosts = 0;
  do {
    patterns.push_back(parse_pattern(cursor, limit));
    int64_t product = 1;
    for (const Part& part : patterns.back().parts) {
      product *= part.count();  // each factor and the product so far are at most the limit
      if (product > limit.hosts) break;
    }
    if ((hosts += product) > limit.hosts) refuse_too_many(cursor, patterns.back().column, limit);
  } while (take_separator(cursor));
  return patterns;
}

std::string padded(int64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

// Appends every host of the pattern, the last bracket running fastest.
void expand(const Pattern& pattern, size_t part, const std::string& prefix,
            std::vector<ListedHost>& hosts) {
  if (part == pattern.parts.size()) {
    hosts.push_back({prefix, pattern.column});
    return;
  }
  const Part& here = pattern.parts[part];
  if (here.ranges.empty()) return expand(pattern, part + 1, prefix + here.literal, hosts);
  for (const Range& range : here.ranges) {
    for (int64_t number = range.first; number <= range.last; ++number) {
      expand(pattern, part + 1, prefix + padded(number, range.width), hosts);
    }
  }
}

}  // namespace

std::vector<ListedHost> expand_host_list(std::string_view text, std::string_view place,
                                         int max_hosts, std::string_view max_source) {
  std::vector<ListedHost> hosts;
  const Limit limit{max_hosts, max_source};
  for (const Pattern& pattern : parse_patterns(Cursor(text, place, kHostsExample), limit)) {
    expand(pattern, 0, "", hosts);
  }
  return hosts;
}

std::vector<int> expand_task_counts(std::string_view text, std::string_view place, int max_hosts,
                                    std::string_view max_source) {
  Cursor cursor(text, place, kCountsExample);
  std::vector<int> counts;
  do {
    const int begin = cursor.column();
    const int64_t count = cursor.take_number("a number of tasks");
    if (count < 1 || count > config::kMaxTasks) {
      cursor.refuse_at(begin, str(count, " tasks"), str("1 to ", config::kMaxTasks));
    }
    int64_t hosts = 1;
    if (cursor.take('(')) {
      if (!cursor.take('x')) cursor.refuse_here("'x' and a number of hosts");
      hosts = cursor.take_number("a number of hosts");
      if (!cursor.take(')')) cursor.refuse_here("')'");
    }
    if (hosts < 1 || hosts > max_hosts - static_cast<int64_t>(counts.size())) {
      cursor.refuse_at(begin, str(hosts, " more", host_word(hosts)),
                       str("1 to ", max_hosts, host_word(max_hosts), " in all",
                           Limit{max_hosts, max_source}.because()));
    }
    counts.insert(counts.end(), static_cast<size_t>(hosts), static_cast<int>(count));
  } while (cursor.take(','));
  if (!cursor.at_end()) cursor.refuse_here("',' or '(x'");
  return counts;
}

}  // namespace cohort
