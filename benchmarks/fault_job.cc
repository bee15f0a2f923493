#include "benchmarks/fault_job.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/program.h"

namespace cohort::benchmarks {
namespace {

constexpr std::chrono::seconds kPatience(30);
constexpr std::chrono::milliseconds kLookInterval(2);

ClusterSpec cluster_of(const FaultJobOptions& o, const std::vector<launcher::ReservedPort>& ports) {
  ClusterSpec::Jobs jobs;
  for (const auto& port : ports) {
    const bool is_server = jobs["ps"].size() < static_cast<size_t>(o.servers);
    jobs[is_server ? "ps" : "worker"].push_back(port.address());
  }
  return ClusterSpec(jobs);
}

}  // namespace

FaultJob::FaultJob(FaultJobOptions options)
    : options_(std::move(options)),
      ports_(static_cast<size_t>(options_.servers + options_.workers)),
      cluster_(cluster_of(options_, ports_)) {
  for (int i = 0; i < options_.servers; ++i)
    servers_.push_back(
        std::make_unique<TaskProcess>(str("ps:", i), [this, i] { serve(options_, cluster_, i); }));
  for (int i = 0; i < options_.workers; ++i)
    workers_.push_back(std::make_unique<TaskProcess>(str("worker:", i),
                                                     [this, i] { work(options_, cluster_, i); }));
  observer_ = std::make_unique<TaskProcess>("the observer", [this] { observe(cluster_); });
  wait_until("all workers train", [this] {
    for (int i = 0; i < options_.workers; ++i)
      if (steps(i).empty()) return false;
    return true;
  });
}

std::vector<TaskProcess*> FaultJob::tasks() const {
  std::vector<TaskProcess*> all = {observer_.get()};
  for (const auto& server : servers_) all.push_back(server.get());
  for (const auto& worker : workers_) all.push_back(worker.get());
  return all;
}

std::string FaultJob::notices() const {
  std::string text;
  for (const TaskProcess* task : tasks())
    for (const auto& line : task->notices()) text += str("\n  ", task->name(), ": ", line.text);
  return text;
}

void FaultJob::wait_until(const std::string& what, const std::function<bool()>& is_so) {
  const Time deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    for (TaskProcess* task : tasks()) {
      task->read();
      if (task->has_ended_by_itself())
        fail(Code::kAborted, task->name(), " has ended with code ", task->exit_code(), " before ",
             what, notices());
    }
    if (is_so()) return;
    if (interrupted()) fail(Code::kCancelled, "interrupted before ", what);
    if (std::chrono::steady_clock::now() > deadline)
      fail(Code::kDeadlineExceeded, "waited for ", kPatience.count(), " s until ", what, notices());
    std::this_thread::sleep_for(kLookInterval);
  }
}

void FaultJob::run_for(std::chrono::nanoseconds duration) {
  const Time end = std::chrono::steady_clock::now() + duration;
  wait_until("the time is over", [end] { return std::chrono::steady_clock::now() >= end; });
}

void FaultJob::wait_for_snapshot(int server) {
  const auto path =
      std::filesystem::path(options_.snapshot_folder) / str("ps-", server) / "snapshot.json";
  const auto written = [&]() -> std::optional<std::filesystem::file_time_type> {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path, error);
    return error ? std::nullopt : std::optional(time);
  };
  const auto before = written();
  wait_until(str("ps:", server, " has written a snapshot"), [&] { return written() != before; });
}

std::vector<Time> FaultJob::steps(int worker) const {
  std::vector<Time> times;
  for (const auto& line : workers_.at(static_cast<size_t>(worker))->said())
    if (line.text == "step") times.push_back(line.time);
  return times;
}

int64_t FaultJob::pushes() const {
  int64_t sum = 0;
  for (int i = 0; i < options_.workers; ++i) sum += static_cast<int64_t>(steps(i).size());
  return sum;
}

Time FaultJob::notice_of_servers(const std::string& part) {
  std::optional<Time> first;
  wait_until(str("a server says \"", part, '"'), [&] {
    for (const auto& server : servers_)
      for (const auto& line : server->notices())
        if (line.text.find(part) != std::string::npos)
          first = std::min(first.value_or(line.time), line.time);
    return first.has_value();
  });
  return *first;
}

std::vector<FaultJob::Sight> FaultJob::sights() const {
  std::vector<Sight> all;
  for (const auto& line : observer_->said()) {
    std::istringstream in(line.text);
    std::string word;
    Sight sight{.time = line.time};
    in >> word >> sight.server >> sight.epoch >> sight.sessions;
    all.push_back(sight);
  }
  return all;
}

Time FaultJob::observed(const std::string& what, Time event,
                        const std::function<bool(const Sight&, const Sight&)>& is_sign) {
  std::optional<Time> found;
  wait_until(str("the observer sees that ", what), [&] {
    std::vector<Sight> answers(servers_.size());
    for (const Sight& sight : sights()) {
      Sight& last = answers.at(static_cast<size_t>(sight.server));
      if (!found && sight.time > event && is_sign(last, sight)) found = sight.time;
      if (sight.epoch != 0) last = sight;
    }
    return found.has_value();
  });
  return *found;
}

void FaultJob::end_tasks(const std::string& what, const std::vector<TaskProcess*>& tasks) {
  for (TaskProcess* task : tasks) task->ask_to_end();
  wait_until(what, [&] {
    return std::ranges::all_of(tasks, [](TaskProcess* task) { return task->has_ended(); });
  });
  for (const TaskProcess* task : tasks)
    if (task->exit_code() != 0)
      fail(Code::kAborted, task->name(), " was asked to end, and did with code ", task->exit_code(),
           notices());
}

std::vector<double> FaultJob::end() {
  std::vector<TaskProcess*> workers, others = {observer_.get()};
  for (const auto& worker : workers_)
    if (!worker->has_ended()) workers.push_back(worker.get());  // one may have been killed
  for (const auto& server : servers_) others.push_back(server.get());
  end_tasks("the workers have ended", workers);
  TaskProcess reader("the reader", [this] { say_values(options_, cluster_); });
  wait_until("the counter has been read", [&] { return reader.has_ended(); });
  if (reader.exit_code() != 0)
    fail(Code::kAborted, "the counter cannot be read: ",
         reader.notices().empty() ? "" : reader.notices().back().text, notices());
  std::vector<double> values(servers_.size());
  for (const auto& line : reader.said()) {
    std::istringstream in(line.text);
    std::string word;
    size_t server = 0;
    in >> word >> server;
    in >> values.at(server);
  }
  end_tasks("the servers have ended", others);
  return values;
}

}  // namespace cohort::benchmarks
