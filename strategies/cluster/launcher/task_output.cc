#include "strategies/cluster/launcher/task_output.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr size_t kMaxLine = 1 << 20;
constexpr size_t kMaxPipe = 1 << 20;

bool is_control(char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 127; }

}  // namespace

void LastLines::add(std::string_view line) {
  std::string text(line.substr(0, kLength));
  for (char& c : text) {
    if (is_control(c)) c = '?';
  }
  if (line.size() > kLength) text += "...";
  lines_.push_back(std::move(text));
  if (lines_.size() > kLines) lines_.pop_front();
}

TaskOutput::TaskOutput(net::Descriptor pipe, std::string prefix, std::shared_ptr<OutputSink> sink,
                       std::shared_ptr<OutputSink> notices, Log log,
                       std::shared_ptr<LastLines> last_lines)
    : pipe_(std::move(pipe)),
      prefix_(std::move(prefix)),
      sink_(std::move(sink)),
      notices_(std::move(notices)),
      log_(std::move(log)),
      last_lines_(std::move(last_lines)) {}

int TaskOutput::readable() const { return sink_ && sink_->is_full() ? -1 : pipe_.get(); }

void TaskOutput::read_some() {
  read_once();
  // As if the task itself wrote where nobody reads.
  if (sink_ && sink_->is_broken() && !log_.file) pipe_.reset();
}

void TaskOutput::read_available() {
  for (size_t left = kMaxPipe / kMaxChunk; left > 0 && read_once(); --left) {
  }
}

void TaskOutput::finish() {
  read_available();
  pipe_.reset();
  if (!line_.empty()) end_line();
}

bool TaskOutput::read_once() {
  if (!pipe_) return false;
  std::array<char, kMaxChunk> bytes;
  const ssize_t size = read(pipe_.get(), bytes.data(), bytes.size());
  if (size > 0) {
    take({bytes.data(), static_cast<size_t>(size)});
    return true;
  }
  if (size < 0 && errno == EINTR) return true;
  if (size == 0) pipe_.reset();
  return false;
}

void TaskOutput::take(std::string_view bytes) {
  write_log(bytes);
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (end != std::string_view::npos || line_.size() >= kMaxLine) end_line();
  }
}

void TaskOutput::end_line() {
  if (sink_) {
    sink_->append(prefix_);
    sink_->append(line_);
    sink_->append("\n");
  }
  last_lines_->add(line_);
  line_.clear();
}

void TaskOutput::write_log(std::string_view bytes) {
  while (log_.file && !bytes.empty()) {
    const ssize_t size = write(log_.file.get(), bytes.data(), bytes.size());
    if (size >= 0) {
      bytes.remove_prefix(static_cast<size_t>(size));
    } else if (errno != EINTR) {
      give_up_log();
    }
  }
}

void TaskOutput::give_up_log() {
  notices_->append(
      str("cohort-run: cannot write ", log_.path, " any more: ", std::strerror(errno), "\n"));
  log_.file.reset();
}

}  // namespace cohort::launcher
