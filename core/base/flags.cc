#include "core/base/flags.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/system_error.h"

namespace cohort {
namespace {

// ", at least 1, at most 64".
template <typename Range>
std::string limits(const Range& range) {
  constexpr Range unlimited{};
  std::string limits;
  if (range.min != unlimited.min) limits += str(", at least ", range.min);
  if (range.max != unlimited.max) limits += str(", at most ", range.max);
  return limits;
}

template <typename T, typename Range>
T parse(const std::string& name, const std::string& text, std::string_view kind,
        const Range& range) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && !text.empty();
  if (whole && value >= range.min && value <= range.max) return value;
  invalid("--", name, "=", text, " is not allowed: expected ", kind, limits(range));
}

}  // namespace

Flags::Flags(int argc, char** argv, std::string description, std::string operands)
    : program_(argc > 0 ? argv[0] : "program"),
      description_(std::move(description)),
      operands_(std::move(operands)) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--help" || text == "-h")
      help_requested_ = true;
    else
      arguments_.push_back({text});
  }
}

bool Flags::take(const std::string& name, const std::string& alone, std::string& value) {
  bool found = false;
  const std::string flag = "--" + name;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    if (argument.text.starts_with(flag + "=")) {
      value = argument.text.substr(flag.size() + 1);
    } else if (argument.text == flag && !alone.empty()) {
      value = alone;
    } else if (argument.text == flag) {
      if (i + 1 == arguments_.size() || arguments_[i + 1].text.starts_with("--"))
        invalid(flag, " needs a value: ", flag, "=...");
      argument.used = true;
      value = arguments_[++i].text;
    } else {
      continue;
    }
    arguments_[i].used = found = true;
  }
  return found && !help_requested_;
}

int64_t Flags::integer(const std::string& name, int64_t fallback, const std::string& help,
                       IntegerRange range) {
  described_.push_back({name, str(fallback), help + limits(range)});
  std::string value;
  return take(name, "", value) ? parse<int64_t>(name, value, "an integer", range) : fallback;
}

double Flags::number(const std::string& name, double fallback, const std::string& help,
                     NumberRange range) {
  described_.push_back({name, str(fallback), help + limits(range)});
  std::string value;
  return take(name, "", value) ? parse<double>(name, value, "a number", range) : fallback;
}

std::string Flags::text(const std::string& name, const std::string& fallback,
                        const std::string& help, const TextOptions& options) {
  const auto& choices = options.choices;
  described_.push_back({name, str('"', fallback, '"'),
                        choices.empty() ? help : str(help, " (", comma_separated(choices), ")")});
  std::string value;
  if (!take(name, options.alone, value)) return fallback;
  if (value.empty() && !options.may_be_empty)
    invalid("--", name, "= is not allowed: expected a value, or no --", name);
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    invalid("--", name, "=", value, " is not allowed: expected one of ", comma_separated(choices));
  }
  return value;
}

bool Flags::boolean(const std::string& name, bool fallback, const std::string& help) {
  described_.push_back({name, fallback ? "true" : "false", help});
  std::string value;
  if (!take(name, "true", value)) return fallback;
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  invalid("--", name, "=", value, " is not allowed: expected true or false");
}

bool Flags::is_given(const std::string& name) const {
  const std::string flag = "--" + name;
  return !help_requested_ && std::ranges::any_of(arguments_, [&](const Argument& argument) {
    return argument.text == flag || argument.text.starts_with(flag + "=");
  });
}

void Flags::finish(const std::map<std::string, std::string>& foreign) {
  if (help_requested_) {
    if (!(std::cout << help() << std::flush)) fail_errno("write", "standard output");
    std::exit(0);
  }
  for (const auto& [text, used] : arguments_) {
    if (used) continue;
    const size_t dashes = text.starts_with("--") ? 2 : text.starts_with("-") ? 1 : 0;
    const std::string name = text.substr(dashes, text.find('=') - dashes);
    const std::string meant = dashes == 0 ? "" : meant_by(name, foreign);
    if (dashes < 2 && meant.empty()) invalid("unexpected argument \"", text, "\"");
    invalid("unknown flag ", text.substr(0, dashes), name,
            meant.empty() ? "" : str("; did you mean ", meant, "?"), " (--help lists the flags)");
  }
}

std::string Flags::meant_by(std::string name,
                            const std::map<std::string, std::string>& foreign) const {
  std::ranges::replace(name, '-', '_');
  if (const auto found = foreign.find(name); found != foreign.end()) return found->second;
  std::vector<std::string_view> names;
  for (const Described& flag : described_) names.push_back(flag.name);
  const std::string_view meant = nearest(name, names);
  return meant.empty() ? "" : str("--", meant);
}

std::string Flags::help() const {
  std::string out = str(description_, "\n\nUsage: ", program_, " [flags]",
                        operands_.empty() ? "" : " ", operands_, "\n\n");
  for (const Described& flag : described_) {
    out += str("  --", flag.name, "  ", flag.help, "; default ", flag.fallback, "\n");
  }
  return out;
}

}  // namespace cohort
