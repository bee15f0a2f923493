#include "strategies/collective/nccl/device_group.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "tests/strategies/collective/nccl/leaving_together.h"

namespace cohort {
namespace {

// Collectives that only know who they are.
class Named final : public DeviceCollectives {
 public:
  Named(int rank, std::atomic<int>& aborted) : rank(rank), aborted_(aborted) {}
  bool can_run(const Call&) const override { return false; }
  void start(const Call&, Stream&, const void*) override {}
  void wait(const void*, Stream&) override {}
  void check() override {
    if (error) throw *error;
  }
  void abort(const Error& e) override {
    error = e;
    ++aborted_;
  }

  const int rank;
  std::optional<Error> error;

 private:
  std::atomic<int>& aborted_;
};

// A library that joins ranks as it is told to, and remembers what they said.
class Library final : public DeviceLibrary {
 public:
  std::string name() const override { return "Test"; }
  std::string place_of(Device device) const override {
    if (device.index == missing) fail(Code::kUnavailable, device, " has gone");
    return str("card ", device.index / gpus_of_a_card, "\nof host ", device.index / gpus_of_a_host);
  }
  std::string make_id() const override {
    if (no_id) fail(Code::kInternal, "no id today");
    return "id: 8 b.";
  }
  size_t id_bytes() const override { return 8; }
  std::unique_ptr<DeviceCollectives> join(const Membership& m) override {
    if (m.rank == refused) fail(Code::kUnavailable, "the cable is out");
    const std::lock_guard lock(mutex);
    gates.insert(m.gate);
    joined.insert(str(m.rank, " of ", m.size, " on ", m.device, " by ", m.id));
    return std::make_unique<Named>(m.rank, aborted);
  }

  int missing = -1, gpus_of_a_card = 1, gpus_of_a_host = 8, refused = -1;
  bool no_id = false;
  std::atomic<int> aborted = 0;
  std::mutex mutex;
  std::set<std::string> joined;
  std::set<std::shared_ptr<LaunchGate>> gates;
};

std::vector<Device> gpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back({DeviceType::kGpu, i});
  return devices;
}

DeviceGroup connect(Library& library, const std::vector<Device>& devices, bool must_join = false) {
  return add_device_collectives(make_in_process_communicators(static_cast<int>(devices.size())),
                                {.library = &library, .devices = devices, .must_join = must_join});
}

TEST(DeviceGroup, GivesEachRankItsCollectives) {
  Library library;
  const DeviceGroup group = connect(library, gpus(3));
  EXPECT_EQ(group.missing, "");
  for (int r = 0; r < 3; ++r) {
    auto* device = group.communicators[static_cast<size_t>(r)]->on_device();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(static_cast<Named*>(device)->rank, r);
    EXPECT_EQ(group.communicators[static_cast<size_t>(r)]->rank(), r);
  }
  EXPECT_EQ(library.joined,
            (std::set<std::string>{"0 of 3 on gpu:0 by id: 8 b.", "1 of 3 on gpu:1 by id: 8 b.",
                                   "2 of 3 on gpu:2 by id: 8 b."}));
  ASSERT_EQ(library.gates.size(), 1) << "the ranks of a process launch together";
  EXPECT_NE(*library.gates.begin(), nullptr);
}

TEST(DeviceGroup, EndsOnTheDeviceToo) {
  Library library;
  const DeviceGroup group = connect(library, gpus(2));
  group.communicators[1]->abort(Error(Code::kAborted, "enough"));
  EXPECT_THROW(group.communicators[1]->on_device()->check(), Error);
  EXPECT_THROW(group.communicators[0]->barrier(), Error);
}

TEST(DeviceGroup, EndsTheRanksOfAProcessAtOnce) {
  testing::Departure departure(3);
  end_together(testing::make_leaving_together(3, departure));
  EXPECT_TRUE(departure.was_together());
}

TEST(DeviceGroup, EndsRanksWithoutCollectivesOnDevicesToo) {
  auto ranks = make_in_process_communicators(2);
  std::vector<std::unique_ptr<Communicator>> one;
  one.push_back(std::move(ranks[1]));
  end_together(std::move(one));
  EXPECT_THROW(ranks[0]->barrier(), Error);
}

void expect_missing(Library& library, const std::vector<Device>& devices,
                    const std::vector<std::string>& parts) {
  const DeviceGroup group = connect(library, devices);
  for (const std::string& part : parts)
    EXPECT_NE(group.missing.find(part), std::string::npos) << group.missing;
  ASSERT_EQ(group.communicators.size(), devices.size());
  for (const auto& communicator : group.communicators) {
    EXPECT_EQ(communicator->on_device(), nullptr);
  }
  EXPECT_TRUE(library.joined.empty());
}

TEST(DeviceGroup, HasNoneWhereTwoShareACard) {
  Library library;
  library.gpus_of_a_card = 2;
  expect_missing(library, gpus(3), {"ranks 0 and 1", "(card 0)"});
}

TEST(DeviceGroup, TellsCardsOfOneNameApartByTheirHosts) {
  Library library;
  library.gpus_of_a_card = 2;
  library.gpus_of_a_host = 1;
  EXPECT_EQ(connect(library, gpus(2)).missing, "");
}

TEST(DeviceGroup, HasNoneWhereADeviceCannot) {
  Library library;
  library.missing = 1;
  expect_missing(library, gpus(3), {"rank 1", "gpu:1 has gone"});
  expect_missing(library, {{DeviceType::kGpu, 0}, {DeviceType::kCpu, 0}},
                 {"rank 1", "cpu:0 is no GPU"});
}

void expect_no_group(Library& library, const std::vector<std::string>& parts) {
  const DeviceGroup group = connect(library, gpus(3));
  for (const std::string& part : parts)
    EXPECT_NE(group.missing.find(part), std::string::npos) << group.missing;
  ASSERT_EQ(group.communicators.size(), 3u);
  std::vector<std::thread> threads;
  for (const auto& communicator : group.communicators) {
    EXPECT_EQ(communicator->on_device(), nullptr);
    threads.emplace_back([&communicator] { EXPECT_NO_THROW(communicator->barrier()); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceGroup, HasNoneWhereOneCannotJoin) {
  Library library;
  library.refused = 2;
  expect_no_group(library, {"Test", "rank 2", "the cable is out"});
  EXPECT_EQ(library.aborted, 2) << "the others have left the group that they had joined";
}

TEST(DeviceGroup, HasNoneWithoutAnId) {
  Library library;
  library.no_id = true;
  expect_no_group(library, {"Test", "rank 0", "no id today"});
  EXPECT_TRUE(library.joined.empty());
}

TEST(DeviceGroup, FailsForAllWhereItIsAskedForAndOneCannotJoin) {
  Library library;
  library.refused = 2;
  try {
    connect(library, gpus(3), true);
    FAIL() << "it has joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable);
    for (const char* part : {"Test", "rank 2", "the cable is out"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
}

// Of as many bytes as the length of what ranks say of their devices.
TEST(DeviceGroup, IsNotTakenForAnotherCall) {
  Library library;
  auto ranks = make_in_process_communicators(2);
  std::vector<std::unique_ptr<Communicator>> own;
  own.push_back(std::move(ranks[0]));
  std::thread other([&] {
    const int64_t word = 1;
    int64_t all[2];
    EXPECT_THROW(ranks[1]->all_gather(&word, all, std::vector<int64_t>(2, sizeof word)), Error);
    ranks[1].reset();
  });
  try {
    add_device_collectives(std::move(own), {.library = &library, .devices = gpus(1)});
    ADD_FAILURE() << "it has taken a length from somewhere else";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("for the devices of ranks"), std::string::npos)
        << error.message();
  }
  other.join();
}

}  // namespace
}  // namespace cohort
