#include "strategies/cluster/launcher/cannot_run.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <unistd.h>

#include "core/base/error.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

// Of a file, in which the system looks for the interpreter.
constexpr size_t kHeadBytes = 256;

// What the first line of a script names, as the system reads it; empty where the file is no script,
// or cannot be read.
std::string interpreter_of(const std::string& path) {
  std::array<char, kHeadBytes> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), head.size());
  const std::string text(head.data(), static_cast<size_t>(file.gcount()));
  if (!text.starts_with("#!")) return "";
  const std::string line = text.substr(2, text.find('\n') - 2);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

}  // namespace

void fail_to_run(int error, const std::string& path) {
  std::string interpreter = error == ENOENT ? interpreter_of(path) : "";
  if (interpreter.empty() || access(interpreter.c_str(), F_OK) == 0)
    fail_system_with(error, "cannot run ", path);
  const bool is_from_windows = interpreter.ends_with('\r');
  if (is_from_windows) interpreter.pop_back();
  std::ranges::replace_if(
      interpreter, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  fail(Code::kNotFound, "cannot run ", path, ": its interpreter ", interpreter, " is missing",
       is_from_windows ? ", for its lines end as on Windows, with a carriage return" : "");
}

}  // namespace cohort::launcher
