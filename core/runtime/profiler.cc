#include "core/runtime/profiler.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/format_number.h"
#include "core/base/host_name.h"
#include "core/base/notice.h"

namespace cohort {
namespace {

double microseconds(std::chrono::nanoseconds d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

// Times in a file are since the last multiple of it, because microseconds since 1970 leave a double
// no fractions to speak of.
constexpr std::chrono::seconds kBase(1'000'000);

std::string process_name(int replica) {
  return str("replica ", replica, ", process ", getpid(), " on ", host_name("localhost"));
}

std::string tenths(double value) { return format_number(value, std::chars_format::fixed, 1); }

}  // namespace

std::atomic<Profiler*> Profiler::active_ = nullptr;
std::mutex Profiler::mutex_;

Profiler::Profiler(size_t max_events) : max_events_(max_events) {
  Profiler* none = nullptr;
  if (!active_.compare_exchange_strong(none, this))
    fail(Code::kFailedPrecondition, "a profiler is active already; end it first");
}

Profiler::~Profiler() {
  const std::lock_guard lock(mutex_);
  active_.store(nullptr);
}

bool Profiler::is_active() { return active_.load(std::memory_order_acquire) != nullptr; }

void Profiler::record(const std::string& name, const std::string& kind, int replica,
                      Clock::time_point begin, Clock::time_point end, const std::string& row) {
  const std::lock_guard lock(mutex_);
  Profiler* const profiler = active_.load();
  if (profiler == nullptr || profiler->is_full_) return;
  profiler->is_full_ = profiler->events_.size() >= profiler->max_events_;
  if (profiler->is_full_)
    print_notice(str("warning: the profiler has ", profiler->max_events_,
                     " events, and leaves out what follows\n"));
  else
    profiler->events_.push_back({name, kind, replica, begin, end, row.empty() ? kind : row});
}

std::vector<Profiler::Event> Profiler::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Profiler::write(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  nlohmann::json trace = nlohmann::json::array();
  const std::chrono::nanoseconds base = wall_start_.time_since_epoch() / kBase * kBase;
  const std::chrono::nanoseconds start = wall_start_.time_since_epoch() - base;
  std::set<int> replicas;
  std::map<std::pair<int, std::string>, int> rows;
  for (const Event& e : events_) {
    if (replicas.insert(e.replica).second)
      trace.push_back({{"ph", "M"},
                       {"name", "process_name"},
                       {"pid", e.replica},
                       {"args", {{"name", process_name(e.replica)}}}});
    const auto [row, added] = rows.try_emplace({e.replica, e.row}, static_cast<int>(rows.size()));
    if (added)
      trace.push_back({{"ph", "M"},
                       {"name", "thread_name"},
                       {"pid", e.replica},
                       {"tid", row->second},
                       {"args", {{"name", e.row}}}});
    trace.push_back({{"ph", "X"},
                     {"name", e.name},
                     {"cat", e.kind},
                     {"pid", e.replica},
                     {"tid", row->second},
                     {"ts", microseconds(start + (e.begin - start_))},
                     {"dur", microseconds(e.end - e.begin)}});
  }
  const nlohmann::json file = {{"baseTimeNanoseconds", base.count()},
                               {"traceEvents", std::move(trace)}};
  write_file_atomically(path, file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string Profiler::summary() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::pair<double, int>> totals;
  double kernels = 0;
  for (const Event& e : events_) {
    auto& [time, calls] = totals[e.kind];
    time += microseconds(e.end - e.begin);
    if (e.kind != kCommunication) kernels += microseconds(e.end - e.begin);
    ++calls;
  }
  std::vector<std::pair<std::string, std::pair<double, int>>> rows(totals.begin(), totals.end());
  std::sort(rows.begin(), rows.end(),
            [](auto& a, auto& b) { return a.second.first > b.second.first; });
  std::string out;
  for (const auto& [kind, total] : rows) {
    const std::string share = kind == kCommunication
                                  ? "beside kernels"
                                  : tenths(100 * total.first / std::max(kernels, 1e-9)) + " %";
    char line[160];
    std::snprintf(line, sizeof(line), "%-32s %8d calls %12s us %7s\n", kind.c_str(), total.second,
                  tenths(total.first).c_str(), share.c_str());
    out += line;
  }
  return out;
}

}  // namespace cohort
