#include "strategies/cluster/launcher/execution.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <elf.h>
#include <fstream>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

// Of a file, in which the system looks for what it is.
constexpr size_t kHeadBytes = 256;

// Empty where it cannot be read.
std::string head_of(const std::string& path) {
  std::array<char, kHeadBytes> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), head.size());
  return {head.data(), static_cast<size_t>(file.gcount())};
}

// What the first line of a script names, as the system reads it; empty where the file is no script,
// or cannot be read.
std::string interpreter_of(const std::string& path) {
  const std::string text = head_of(path);
  if (!text.starts_with("#!")) return "";
  const std::string line = text.substr(2, text.find('\n') - 2);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

// ELF has such bytes, too.
bool is_text(const std::string& head) { return head.find('\0') == std::string::npos; }

// Of a program in ELF, the number of the machine that it is for; EM_NONE of all else.
int machine_of(const std::string& path) {
  constexpr size_t kPlace = offsetof(Elf64_Ehdr, e_machine);  // that of 32 bits, too
  const std::string head = head_of(path);
  if (!head.starts_with(ELFMAG) || head.size() < kPlace + 2) return EM_NONE;
  const int first = static_cast<unsigned char>(head[kPlace]);
  const int second = static_cast<unsigned char>(head[kPlace + 1]);
  return head[EI_DATA] == ELFDATA2MSB ? first << 8 | second : second << 8 | first;
}

std::string machine_name(int machine) {
  switch (machine) {
    case EM_386:
      return "i386";
    case EM_X86_64:
      return "x86_64";
    case EM_ARM:
      return "arm";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv";
    case EM_S390:
      return "s390x";
    default:
      return str("machine ", machine, " of ELF");
  }
}

// What a file is that the system knows no way to run.
std::string foreign(const std::string& path) {
  const int machine = machine_of(path), own = machine_of("/proc/self/exe");
  if (machine == EM_NONE || machine == own)
    return str("no program of this machine (", machine_name(own), "), and no text");
  return str("a program for ", machine_name(machine), ", and this machine is ", machine_name(own));
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const auto& text : strings) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

int become_program(const std::string& path, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment) {
  const auto variables = pointers(environment);
  execve(path.c_str(), pointers(arguments).data(), variables.data());
  const int error = errno;
  if (error != ENOEXEC || !interpreter_of(path).empty() || !is_text(head_of(path))) return error;
  std::vector<std::string> script = {"/bin/sh", path};
  script.insert(script.end(), arguments.begin() + 1, arguments.end());
  execve(script[0].c_str(), pointers(script).data(), variables.data());
  return errno;
}

void fail_to_run(int error, const std::string& path) {
  std::string interpreter = interpreter_of(path);
  if (error == ENOEXEC) {
    fail(Code::kPermissionDenied, "cannot run ", path, ": ",
         interpreter.empty() ? "it" : "its interpreter " + printable(interpreter), " is ",
         foreign(interpreter.empty() ? path : interpreter));
  }
  if (error != ENOENT || interpreter.empty() || access(interpreter.c_str(), F_OK) == 0)
    fail_system_with(error, "cannot run ", path);
  const bool is_from_windows = interpreter.ends_with('\r');
  if (is_from_windows) interpreter.pop_back();
  fail(Code::kNotFound, "cannot run ", path, ": its interpreter ", printable(interpreter),
       " is missing",
       is_from_windows ? ", for its lines end as on Windows, with a carriage return" : "");
}

}  // namespace cohort::launcher
