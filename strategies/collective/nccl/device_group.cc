#include "strategies/collective/nccl/device_group.h"

#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include "core/base/start_threads.h"
#include "core/collective/forwarding_communicator.h"
#include "core/collective/split.h"

namespace cohort {
namespace {

class WithDevice final : public ForwardingCommunicator {
 public:
  WithDevice(std::unique_ptr<Communicator> host, std::unique_ptr<DeviceCollectives> device)
      : ForwardingCommunicator(std::move(host)), device_(std::move(device)) {}
  // The device's first: the host's calls may wait for what the device never ends.
  void abort(const Error& error) override {
    device_->abort(error);
    inner().abort(error);
  }
  DeviceCollectives* on_device() override { return device_.get(); }

 private:
  const std::unique_ptr<DeviceCollectives> device_;
};

using Ranks = std::vector<std::unique_ptr<Communicator>>;

// Runs `body` for each rank of this process on a thread of its own. The first error is thrown, and
// ends the group, so that no rank waits for one that has failed.
void on_threads(const Ranks& ranks, const std::function<void(size_t)>& body) {
  std::mutex mutex;
  std::optional<Error> first;
  const auto end_group = [&](const Error& error) {
    const std::lock_guard lock(mutex);
    if (first) return;
    first = error;
    for (const auto& rank : ranks) rank->abort(error);
  };
  const auto run_one = [&](int thread) {
    try {
      body(static_cast<size_t>(thread));
    } catch (const Error& error) {
      end_group(error);
    }
  };
  std::vector<std::thread> threads =
      start_threads(static_cast<int>(ranks.size()), run_one, end_group);
  for (std::thread& thread : threads) thread.join();
  if (first) throw *first;
}

// What every rank says of `topic`, by rank.
std::vector<std::string> gather_words(Communicator& ranks, std::string_view topic,
                                      const std::string& own) {
  const std::vector<int64_t> lengths = tell_all(ranks, topic, static_cast<int64_t>(own.size()));
  int64_t total = 0;
  for (const int64_t l : lengths) total += l;
  std::string all(static_cast<size_t>(total), '\0');
  ranks.all_gather(own.data(), all.data(), lengths);
  std::vector<std::string> said;
  size_t at = 0;
  for (const int64_t l : lengths) {
    said.push_back(all.substr(at, static_cast<size_t>(l)));
    at += static_cast<size_t>(l);
  }
  return said;
}

// What a rank says of its device, where it can take part and where not.
constexpr char kPlace = '+', kReason = '-';

std::string introduce(const DeviceLibrary& library, Device device) {
  try {
    if (device.type != DeviceType::kGpu) return kReason + str(device, " is no GPU");
    return kPlace + library.place_of(device);
  } catch (const Error& error) {
    return kReason + error.message();
  }
}

// What people are shown of a place.
std::string shown(const std::string& place) { return place.substr(0, place.find('\n')); }

// Why the ranks that said this cannot form a group; empty where they can.
std::string find_obstacle(const std::vector<std::string>& said) {
  std::map<std::string, size_t> places;
  for (size_t r = 0; r < said.size(); ++r) {
    if (said[r].empty() || said[r][0] != kPlace)
      return str("rank ", r, ": ", said[r].empty() ? "" : said[r].substr(1));
    const auto [other, is_new] = places.emplace(said[r].substr(1), r);
    if (!is_new)
      return str("ranks ", other->second, " and ", r, " share one card (", shown(other->first),
                 ")");
  }
  return {};
}

// Of what every rank tries: why the first one for which it has failed cannot go on, the same on all
// ranks; empty where there is none.
std::string failure_of(Communicator& ranks, const std::function<void()>& attempt) {
  std::string own;
  try {
    attempt();
  } catch (const Error& error) {
    own = error.what();
  }
  const auto failures = gather_words(ranks, "the outcome on devices", own);
  for (size_t r = 0; r < failures.size(); ++r)
    if (!failures[r].empty()) return str("rank ", r, ": ", failures[r]);
  return {};
}

// Joins, or tells why not all can: no rank is to use a group that others do not have.
std::string join(Communicator& ranks, const DeviceGroupOptions& options, Device device,
                 const std::shared_ptr<LaunchGate>& gate,
                 std::unique_ptr<DeviceCollectives>& joined) {
  DeviceLibrary& library = *options.library;
  std::string id(library.id_bytes(), '\0');
  std::string failure = failure_of(ranks, [&] {
    if (ranks.rank() == 0) id = library.make_id();
  });
  if (failure.empty()) {
    ranks.broadcast(id.data(), id.data(), static_cast<int64_t>(id.size()), 0);
    failure = failure_of(ranks, [&] {
      joined = library.join({id, ranks.rank(), ranks.size(), device, options.join_limit,
                             options.limit, options.stall, gate});
    });
  }
  if (failure.empty()) return {};
  failure = str("there is no group of ", library.name(), " (", failure, ")");
  if (joined != nullptr) joined->abort(Error(Code::kUnavailable, failure));
  joined.reset();
  return failure;
}

}  // namespace

DeviceGroup add_device_collectives(std::vector<std::unique_ptr<Communicator>> ranks,
                                   const DeviceGroupOptions& options) {
  COHORT_CHECK(ranks.size() == options.devices.size() && options.library != nullptr);
  std::vector<std::unique_ptr<DeviceCollectives>> joined(ranks.size());
  const auto gate = std::make_shared<LaunchGate>(static_cast<int>(ranks.size()));
  DeviceGroup group;
  on_threads(ranks, [&](size_t t) {
    const auto said = gather_words(*ranks[t], "the devices of ranks",
                                   introduce(*options.library, options.devices[t]));
    std::string missing = find_obstacle(said);
    if (missing.empty()) {
      missing = join(*ranks[t], options, options.devices[t], gate, joined[t]);
      if (options.must_join && !missing.empty()) fail(Code::kUnavailable, missing);
    }
    if (t == 0) group.missing = missing;
  });
  for (size_t t = 0; t < ranks.size(); ++t)
    if (joined[t] != nullptr)
      ranks[t] = std::make_unique<WithDevice>(std::move(ranks[t]), std::move(joined[t]));
  group.communicators = std::move(ranks);
  return group;
}

void end_together(std::vector<std::unique_ptr<Communicator>> ranks) {
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (auto& rank : ranks) {
    if (rank->on_device() == nullptr) continue;
    try {
      threads.push_back(start_thread([&rank] { rank.reset(); }));
    } catch (const Error&) {  // no more threads: it ends behind the others
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cohort
