#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "strategies/cluster/launcher/output_sink.h"
#include "strategies/cluster/launcher/task_log.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// The last lines that a task printed, made fit to be printed again: short, and without control
// characters.
class LastLines {
 public:
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  static constexpr size_t kLines = 10;
  static constexpr size_t kLength = 500;

  std::deque<std::string> lines_;
};

// One stream of a task on its way from a pipe to a sink: every line, whole, behind a prefix. Lines
// longer than 1 MiB are cut into several; a last line without an end gets one. The bytes of a line
// are passed on as they are. A log file, if there is one, gets all bytes without prefixes.
class TaskOutput {
 public:
  // No sink: the lines are not shown. `notices` gets the launcher's own lines. The last lines may
  // be shared with another stream.
  TaskOutput(net::Descriptor pipe, std::string prefix, std::shared_ptr<OutputSink> sink,
             std::shared_ptr<OutputSink> notices, Log log, std::shared_ptr<LastLines> last_lines);

  // The pipe to wait for, or -1 when there is nothing to wait for now.
  int readable() const;
  // Reads once.
  void read_some();
  // Reads what the pipe holds now, at most a few of the largest pipes.
  void read_available();
  // To be called when no process holds the other end: reads the rest and ends the last line.
  void finish();
  // For who goes on with it; here there is none from then on.
  Log release_log() { return std::move(log_); }

 private:
  static constexpr size_t kMaxChunk = 1 << 16;

  // Returns false when the pipe is empty for now or at its end.
  bool read_once();
  void take(std::string_view bytes);
  void end_line();
  void write_log(std::string_view bytes);
  void give_up_log();

  net::Descriptor pipe_;
  std::string prefix_;
  std::shared_ptr<OutputSink> sink_, notices_;
  Log log_;
  std::shared_ptr<LastLines> last_lines_;
  std::string line_;  // begun, but not ended
};

}  // namespace cohort::launcher
