#include "benchmarks/training_job.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/program.h"
#include "strategies/cluster/launcher/launch.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

// A step may take so much longer than its pace.
constexpr std::chrono::milliseconds kLongestStep(20);

constexpr char kFailed[] = "failed";
// Of the chief, whose steps are those of all.
constexpr std::string_view kStarted = "[worker:0] id ", kBegan = "[worker:0] began ",
                           kMade = "[worker:0] made ";

// As the program cohort-run does it; its workers are this program again.
std::function<void()> cohort_run(const TrainingJobOptions& options) {
  std::vector<std::string> arguments = {"cohort-run",
                                        str("--workers=", options.workers),
                                        str("--restarts=", options.restarts),
                                        "--grace=10",  // less than a TaskGroup waits
                                        "--standalone",
                                        "--",
                                        "/proc/self/exe"};
  for (std::string& argument : arguments_of(options.task)) arguments.push_back(std::move(argument));
  return [arguments]() mutable {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int code = launcher::launch(static_cast<int>(arguments.size()), argv.data());
    std::fflush(nullptr);
    _exit(code);
  };
}

// How cohort-run shows what a worker says.
std::string start_of(int worker, const std::string& word) {
  return str("[worker:", worker, "] ", word);
}

std::optional<int64_t> number_after(std::string_view start, const std::string& text) {
  if (!text.starts_with(start)) return std::nullopt;
  return std::strtoll(text.c_str() + start.size(), nullptr, 10);
}

double seconds(Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// The completed steps of each attempt.
std::vector<JobAttempt> attempts_in(const std::vector<TaskProcess::Line>& lines) {
  std::vector<JobAttempt> attempts;
  double began = 0;
  for (const auto& [time, text] : lines) {
    if (text.starts_with(kStarted)) attempts.emplace_back();
    if (text.starts_with(kBegan)) began = seconds(time);
    if (const auto step = number_after(kMade, text))
      attempts.back().steps.push_back({.step = *step, .begin = began, .end = seconds(time)});
  }
  return attempts;
}

}  // namespace

TrainingJob::TrainingJob(const TrainingJobOptions& options)
    : options_(options), launcher_(tasks_.start("cohort-run", cohort_run(options))) {}

void TrainingJob::train_for(std::chrono::nanoseconds duration) {
  tasks_.wait_until("the first step is made", [this] {
    return std::ranges::any_of(launcher_.said(),
                               [](const auto& line) { return line.text.starts_with(kMade); });
  });
  tasks_.run_for(duration);
}

Time TrainingJob::disturb(int worker, int signal) {
  disturbed_ = worker;
  said_before_ = launcher_.said().size();
  notices_before_ = launcher_.notices().size();
  const pid_t id = std::atoi(last_word(worker, "id").c_str());
  disturbed_at_ = Clock::now();
  if (id <= 0 || kill(id, signal) != 0)
    fail(Code::kAborted, "worker:", worker, " has ended before it was disturbed", tasks_.notices());
  return disturbed_at_;
}

Time TrainingJob::noticed() {
  Time last = disturbed_at_;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (worker == disturbed_) continue;
    const TaskProcess::Line line = said(worker, kFailed);
    if (line.text.find(str("worker:", disturbed_), start_of(worker, kFailed).size()) ==
        std::string::npos)
      fail(Code::kInternal, "worker:", disturbed_,
           " was disturbed, and another does not name it: ", line.text);
    last = std::max(last, line.time);
  }
  return last;
}

Time TrainingJob::last_said(const std::string& word) {
  Time last = disturbed_at_;
  for (int worker = 0; worker < options_.workers; ++worker)
    last = std::max(last, said(worker, word).time);
  return last;
}

Time TrainingJob::ended() {
  tasks_.wait_until("all workers have ended", [this] {
    const auto& notices = launcher_.notices();
    const auto restart = std::find_if(
        notices.begin() + static_cast<std::ptrdiff_t>(notices_before_), notices.end(),
        [](const auto& line) { return line.text.starts_with("cohort-run: restarting all tasks"); });
    if (restart == notices.end()) return false;
    ended_at_ = restart->time;
    return true;
  });
  return ended_at_;
}

Time TrainingJob::went_on() {
  Time found;
  tasks_.wait_until("a step is made that had not been made before", [&] {
    int64_t before = -1;
    for (const auto& [time, text] : launcher_.said()) {
      const auto step = number_after(kMade, text);
      if (!step) continue;
      found = time;
      if (time < ended_at_)
        before = std::max(before, *step);
      else if (*step > before)
        return true;
    }
    return false;
  });
  return found;
}

int TrainingJob::ended_resumable() const {
  const std::string resumable = str("exited with code ", kExitResumable);
  const auto says_so = [&](const TaskProcess::Line& line) {
    return (line.text.starts_with("cohort-run: failed: ") ||
            line.text.starts_with("cohort-run: then ")) &&
           line.text.find(resumable) != std::string::npos;
  };
  return static_cast<int>(std::ranges::count_if(launcher_.notices(), says_so));
}

std::vector<JobAttempt> TrainingJob::attempts() const {
  std::vector<JobAttempt> attempts = attempts_in(launcher_.said());
  if (attempts.size() != 2 || attempts[0].steps.empty() || attempts[1].steps.empty())
    fail(Code::kInternal, "a job that was to be started again once has had ", attempts.size(),
         " attempts", tasks_.notices());
  JobAttempt &first = attempts[0], &second = attempts[1];
  first.started = first.steps.front().begin;
  // The step under way may have been complete, but for the chief's saying so.
  first.failed = std::max(seconds(disturbed_at_), first.steps.back().end);
  first.ended = second.started = seconds(ended_at_);
  second.failed = second.ended = second.steps.back().end;
  return attempts;
}

std::string TrainingJob::end() {
  launcher_.let_end();
  tasks_.wait_until(
      "the job has ended", [this] { return launcher_.has_ended(); },
      options_.task.steps * (options_.task.pace + kLongestStep));
  if (launcher_.exit_code() != 0)
    fail(Code::kAborted, "the job has ended with code ", launcher_.exit_code(), tasks_.notices());
  std::string weights = last_word(0, "weights");
  for (int worker = 1; worker < options_.workers; ++worker)
    if (const std::string other = last_word(worker, "weights"); other != weights)
      fail(Code::kDataLoss, "the weights of worker:0 have the check ", weights,
           ", those of worker:", worker, " ", other);
  return weights;
}

TaskProcess::Line TrainingJob::said(int worker, const std::string& word) {
  const std::string start = start_of(worker, word);
  TaskProcess::Line found;
  tasks_.wait_until(str("worker:", worker, " says \"", word, '"'), [&] {
    const auto& lines = launcher_.said();
    const auto line =
        std::find_if(lines.begin() + static_cast<std::ptrdiff_t>(said_before_), lines.end(),
                     [&](const auto& each) { return each.text.starts_with(start); });
    if (line == lines.end()) return false;
    found = *line;
    return true;
  });
  return found;
}

std::string TrainingJob::last_word(int worker, const std::string& word) const {
  const std::string start = start_of(worker, word) + ' ';
  const auto& lines = launcher_.said();
  const auto line = std::find_if(lines.rbegin(), lines.rend(),
                                 [&](const auto& each) { return each.text.starts_with(start); });
  return line == lines.rend() ? "" : line->text.substr(start.size());
}

}  // namespace cohort::benchmarks
