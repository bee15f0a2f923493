#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// What a flag may be, ends included.
struct IntegerRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};
struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};
struct TextOptions {
  std::vector<std::string> choices = {};  // the allowed values; empty: any
  std::string alone = {};                 // of --name without a value; empty: it needs one
  bool may_be_empty = true;  // else --name= is refused, as of a script's variable that is not set
};

// The command line of a program, read flag by flag:
//
//   Flags flags(argc, argv, "Trains a small CNN on MNIST.");
//   const int64_t epochs = flags.integer("epochs", 3, "passes over the data", {.min = 1});
//   flags.finish();
//
// A flag is written --name=value or --name value; a boolean, and a text that has a value when it
// stands alone, --name=value or --name. A boolean's values are true, false, 1 and 0. The last of
// several wins. Errors are kInvalidArgument and name the flag, its value and what is allowed. One
// thread at a time.
class Flags {
 public:
  // `operands`: what the help says comes behind the flags, as in "PROGRAM [ARGS...]". Whoever takes
  // such leaves them out of `argv`.
  Flags(int argc, char** argv, std::string description, std::string operands = "");

  // Each returns the flag's value, or `fallback` when it is absent.
  int64_t integer(const std::string& name, int64_t fallback, const std::string& help,
                  IntegerRange range = {});
  double number(const std::string& name, double fallback, const std::string& help,
                NumberRange range = {});
  std::string text(const std::string& name, const std::string& fallback, const std::string& help,
                   const TextOptions& options = {});
  bool boolean(const std::string& name, bool fallback, const std::string& help);

  // Whether --name is on the command line, with a value or without; not when help is asked for.
  bool is_given(const std::string& name) const;

  // To be called when all flags have been asked for. With --help or -h, prints them and exits with
  // 0, but for standard output that cannot be written, an Error of the system's; an argument that
  // nobody asked for is an error that suggests what a flag of this name elsewhere means here, by
  // `foreign` from such names, written with underscores, to "--name" or other words; else the
  // nearest flag.
  void finish(const std::map<std::string, std::string>& foreign = {});
  // What --help prints.
  std::string help() const;

 private:
  struct Argument {
    std::string text;
    bool used = false;
  };
  struct Described {
    std::string name, fallback, help;
  };
  // Takes the value of the last --name, or returns false. `alone` is the value of --name without
  // one; where it is empty, one is needed.
  bool take(const std::string& name, const std::string& alone, std::string& value);
  // What is meant by an unknown name, as "--name"; "" where there is no telling.
  std::string meant_by(std::string name, const std::map<std::string, std::string>& foreign) const;

  std::string program_, description_, operands_;
  std::vector<Argument> arguments_;
  std::vector<Described> described_;
  bool help_requested_ = false;
};

}  // namespace cohort
