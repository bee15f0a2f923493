#include "benchmarks/fault_job.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

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
    servers_.push_back(&tasks_.start(str("ps:", i), [this, i] { serve(options_, cluster_, i); }));
  for (int i = 0; i < options_.workers; ++i)
    workers_.push_back(
        &tasks_.start(str("worker:", i), [this, i] { work(options_, cluster_, i); }));
  observer_ = &tasks_.start("the observer", [this] { observe(cluster_); });
  wait_until("all workers train", [this] {
    for (int i = 0; i < options_.workers; ++i)
      if (steps(i).empty()) return false;
    return true;
  });
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
    for (const TaskProcess* server : servers_)
      for (const auto& line : server->notices())
        if (line.text.find(part) != std::string::npos)
          first = std::min(first.value_or(line.time), line.time);
    return first.has_value();
  });
  return *first;
}

Time FaultJob::observed(const std::string& what, Time event,
                        const std::function<bool(const Sight&, const Sight&)>& is_sign) {
  std::optional<Time> found;
  wait_until(str("the observer sees that ", what), [&] {
    std::vector<Sight> answers(servers_.size());
    for (const auto& line : observer_->said()) {
      const Sight sight = sight_in(line.text);
      Sight& last = answers.at(static_cast<size_t>(sight.server));
      if (!found && line.time > event && is_sign(last, sight)) found = line.time;
      if (sight.epoch != 0) last = sight;
    }
    return found.has_value();
  });
  return *found;
}

std::vector<double> FaultJob::end() {
  std::vector<TaskProcess*> workers, others = {observer_};
  for (TaskProcess* worker : workers_)
    if (!worker->has_ended()) workers.push_back(worker);  // one may have been killed
  std::ranges::copy(servers_, std::back_inserter(others));
  tasks_.end("the workers have ended", workers);
  TaskProcess reader("the reader", [this] { say_values(options_, cluster_); });
  wait_until("the counter has been read", [&] { return reader.has_ended(); });
  if (reader.exit_code() != 0)
    fail(Code::kAborted, "the counter cannot be read: ",
         reader.notices().empty() ? "" : reader.notices().back().text, tasks_.notices());
  std::vector<double> values(servers_.size());
  for (const auto& line : reader.said()) {
    std::istringstream in(line.text);
    std::string word;
    size_t server = 0;
    in >> word >> server;
    in >> values.at(server);
  }
  tasks_.end("the servers have ended", others);
  return values;
}

}  // namespace cohort::benchmarks
