#include "strategies/cluster/launcher/output_sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/system_error.h"

namespace cohort::launcher {
namespace {

bool wants_colours(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) && !(no_color && *no_color) &&
         !(terminal && terminal == std::string_view("dumb"));
}

bool is_same_file(int a, int b) {
  struct stat of_a {
  }, of_b{};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

// Whether a write of up to PIPE_BUF bytes returns at once, be it with an error.
bool takes_more(int descriptor) {
  pollfd state{descriptor, POLLOUT, 0};
  return poll(&state, 1, 0) > 0;
}

}  // namespace

OutputSink::OutputSink(int descriptor, std::shared_ptr<OutputSink> notices)
    : descriptor_(descriptor),
      notices_(std::move(notices)),
      has_colours_(wants_colours(descriptor)) {}

void OutputSink::write_some() {
  while (!is_empty() && takes_more(descriptor_)) {
    const size_t size = std::min<size_t>(queue_.size() - written_, PIPE_BUF);
    const ssize_t count = write(descriptor_, queue_.data() + written_, size);
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;  // somebody else made the descriptor non-blocking
    } else if (errno == EPIPE || errno == ECONNRESET) {
      broken_ = true;
      written_ = queue_.size();
    } else if (errno != EINTR) {
      lose(code_of_errno(errno), std::strerror(errno));
    }
  }
  if (is_empty() || written_ > kCapacity) queue_.erase(0, std::exchange(written_, 0));
}

void OutputSink::give_up() {
  if (!is_empty()) lose(Code::kDeadlineExceeded, "nobody reads it");
}

void OutputSink::lose(Code code, const std::string& why) {
  loss_ = code;
  written_ = queue_.size();
  if (!notices_) return;
  std::exchange(notices_, nullptr)
      ->append(str("cohort-run: cannot write the standard output: ", why,
                   "; what it does not take is lost\n"));
}

Console::Console() {
  const bool one_file = is_same_file(STDOUT_FILENO, STDERR_FILENO);
  if (!one_file) errors = std::make_shared<OutputSink>(STDERR_FILENO);
  output = std::make_shared<OutputSink>(STDOUT_FILENO, errors);
  if (one_file) errors = output;
}

void Console::watch(std::vector<pollfd>& events) const {
  for (const auto* sink : {output.get(), errors.get()})
    if (!sink->is_empty()) events.push_back({sink->descriptor(), POLLOUT, 0});
}

void Console::write_some() const {
  output->write_some();
  errors->write_some();
}

void Console::give_up() const {
  output->give_up();
  errors->write_some();
  errors->give_up();
}

int Console::code_of_end(int code) const {
  const auto loss = output->loss() ? output->loss() : errors->loss();
  return code == 0 && loss ? exit_code(*loss) : code;
}

}  // namespace cohort::launcher
