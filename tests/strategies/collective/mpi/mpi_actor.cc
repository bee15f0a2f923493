#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/base/crc32c.h"
#include "core/collective/communicator.h"
#include "strategies/collective/make_communicators.h"
#include "strategies/collective/mpi/collectives.h"
#include "strategies/collective/mpi/mpi_communicator.h"
#include "strategies/collective/mpi/mpi_library.h"
#include "strategies/collective/mpi/mpi_process.h"
#include "strategies/collective/mpi/traffic.h"
#include "tests/strategies/collective/directory_store.h"

// One rank of a job that goes well or wrong as its argument says; mpi_test.py looks at what it
// prints, a line each, and at how the job ends.
namespace cohort {
namespace {

using std::chrono::milliseconds;

void say(int rank, const std::string& text) {
  const std::string line = str("rank ", rank, ": ", text, "\n");
  std::cout << line << std::flush;
}

// Says which error `work` throws, and how soon.
void expect_error(int rank, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    work();
    say(rank, "no error");
  } catch (const Error& error) {
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
    say(rank, str(seconds.count() < 10 ? "soon " : "late ", error.what()));
  }
}

void expect_no_error(int rank, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    say(rank, error.what());
  }
}

// Longer than any test runs.
void sleep_for_ever() { std::this_thread::sleep_for(std::chrono::hours(1)); }

// Numbers whose sum depends on the order in which they are added.
std::vector<float> fractions(int rank, int64_t count) {
  std::vector<float> data(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    data[static_cast<size_t>(i)] = std::sin(static_cast<float>(i * 31 + rank * 17));
  return data;
}

void all_reduce(Communicator& communicator, std::vector<float>& data) {
  const Segment segment{data.data(), data.data(), std::ssize(data)};
  communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
}

uint32_t checksum(const std::vector<float>& data) {
  return crc32c({reinterpret_cast<const char*>(data.data()), data.size() * sizeof(float)});
}

// Sums of small and large vectors have the bits that adding in rank order gives.
void order() {
  const auto group = make_mpi_communicator();
  for (const int64_t count : {3, 700, 100'003, 1'000'000}) {
    std::vector<float> data = fractions(group->rank(), count), in_order = fractions(0, count);
    for (int r = 1; r < group->size(); ++r) {
      const std::vector<float> other = fractions(r, count);
      for (size_t i = 0; i < in_order.size(); ++i) in_order[i] += other[i];
    }
    all_reduce(*group, data);
    say(group->rank(), str(count, checksum(data) == checksum(in_order) ? " in order" : " differs"));
  }
}

// More than 2^31 bytes in one call.
void huge() {
  const auto group = make_mpi_communicator();
  const size_t bytes = (size_t{1} << 31) + 12'345;
  const std::unique_ptr<uint8_t[]> data(new uint8_t[bytes]);
  const auto expected = [](size_t i) { return static_cast<uint8_t>(i / 4096 % 251); };
  if (group->rank() == 0)
    for (size_t i = 0; i < bytes; i += 4096)
      std::memset(&data[i], expected(i), std::min<size_t>(4096, bytes - i));
  group->broadcast(data.get(), data.get(), static_cast<int64_t>(bytes), 0);
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; i += 1021) wrong += data[i] != expected(i);
  wrong += data[bytes - 1] != expected(bytes - 1);
  say(group->rank(), str(wrong, " wrong"));
}

// What mpirun says, before MPI has started.
int launched_rank() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

// Rank 1 comes when rank 0 has given up, which then tries again.
void second_attempt() {
  const auto& mpi = mpi::library();
  int provided = 0;
  mpi.init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  testing::DirectoryStore store(std::getenv("COHORT_TEST_STORE"));
  if (launched_rank() == 0) {
    expect_error(0, [] { make_mpi_communicator({.time_limit_seconds = 0.1}); });
    store.set("given_up", "");
  } else {
    store.get("given_up", std::chrono::minutes(1));
  }
  auto group = make_mpi_communicator({.time_limit_seconds = 60});
  std::vector<float> data(10, 1);
  all_reduce(*group, data);
  say(group->rank(), str("sum ", data.front()));
  group = nullptr;
  mpi.finalize();
}

// Rank 1, which has more patience, does not come; the others name it.
void late() {
  const auto group =
      make_mpi_communicator({.time_limit_seconds = launched_rank() == 1 ? 60.0 : 1.0});
  group->barrier();
  if (group->rank() == 1) {
    expect_error(1, [&] {
      char byte;
      group->receive(&byte, 1, 0, 5);  // where it is told of the others' end
    });
    return;
  }
  expect_error(group->rank(), [&] { group->barrier(); });
}

// A message that nobody sends.
void no_message() {
  const auto group = make_mpi_communicator({.time_limit_seconds = 1});
  group->barrier();
  if (group->rank() == 0)
    expect_error(0, [&] {
      char byte;
      group->receive(&byte, 1, 1, 5);
    });
  else
    expect_error(group->rank(), [&] {
      while (true) std::this_thread::sleep_for(milliseconds(10)), group->split(0);
    });
}

// Rank 1 does its part of each call when rank 0 has told it that it waits for it.
void stalled() {
  char word = 'x';
  std::unique_ptr<Communicator> group;
  StallWarning stall{.after = milliseconds(0)};
  if (launched_rank() == 0)
    stall = {milliseconds(300), [&](const std::string& line) {
               say(0, line);
               group->start_send({&word, 1, 1, 7});
             }};
  group = make_mpi_communicator({.stall = stall});
  const bool is_late = group->rank() == 1;
  const auto await_warning = [&] {
    if (is_late) group->receive(&word, 1, 0, 7);
  };
  await_warning();
  group->barrier();
  await_warning();
  if (is_late)
    group->receive(&word, 1, 0, 5);
  else
    group->send(&word, 1, 1, 5);
  await_warning();
  if (is_late)
    group->send(&word, 1, 0, 5);
  else
    group->receive(&word, 1, 1, 5);
}

// Rank 0 is stopped in the middle of everything, and all others are freed.
void stopped() {
  const auto group = make_mpi_communicator({.time_limit_seconds = 2});
  group->barrier();
  std::vector<float> data(4'000'000, 1);
  if (group->rank() == 0) {
    say(0, str("pid ", getpid()));
    raise(SIGSTOP);
  }
  expect_error(group->rank(), [&] { all_reduce(*group, data); });
}

// Rank 1 says that it makes a call and is lost. The application of rank 0, which waits for its
// data, hears of it.
void lost() {
  const auto transport = mpi::process_transport(std::chrono::seconds(60));
  const int rank = transport->rank();
  mpi::Group group(transport, 1, {0, 1}, {"worker:0", "worker:1"}, rank);
  const Call call = BarrierCall{};
  const StallWarning stall;
  mpi::Traffic traffic(group, call, 0, std::chrono::minutes(1), stall);
  traffic.join(std::vector<mpi::Control>(2));
  traffic.finish();
  if (rank == 1) {
    transport->poll_until(mpi::Clock::now() + std::chrono::minutes(1),
                          [&] { return group.has_ended(); });
    return;
  }
  mpi::Batch batch(traffic);
  batch.receive(1, 1);
  const auto begin = mpi::Clock::now();
  std::thread application(
      [&] { group.abort(Error(Code::kUnavailable, "worker:1 is gone", "worker:1")); });
  expect_error(rank, [&] { batch.wait_for_receives(); });
  application.join();
  // Ranks that are there have 3 s to finish what they have begun.
  say(rank, mpi::Clock::now() - begin < std::chrono::seconds(2) ? "at once" : "late");
  say(rank, group.give_up(Error(Code::kDataLoss, "this comes later"), 0).what());
  group.flush_end();
}

// Rank 0 ends the group while rank 1 does not listen. When rank 2 knows, rank 1 has been told, too;
// then its application gives another reason.
void told(Code code) {
  const auto group = make_mpi_communicator();
  group->barrier();
  testing::DirectoryStore store(std::getenv("COHORT_TEST_STORE"));
  const int rank = group->rank();
  if (rank == 0) {
    store.get("deaf", std::chrono::minutes(1));
    group->abort(Error(code, "rank 1 does not come", "rank 1"));
  } else if (rank == 1) {
    store.set("deaf", "");
    store.get("told", std::chrono::minutes(1));
    group->abort(Error(Code::kUnavailable, "rank 1 was started again", "rank 1"));
  }
  for (int call = 0; call < 2; ++call) expect_error(rank, [&] { group->barrier(); });
  if (rank == 2) store.set("told", "");
}

// Rank 2 ends the group while a message moves, of which rank 1 takes no more than its beginning:
// the limit of rank 0 comes before it has no more patience.
void ended_while_moving() {
  std::vector<char> data(size_t{16} << 20);
  const auto group =
      make_mpi_communicator({.time_limit_seconds = launched_rank() == 0 ? 2.0 : 60.0});
  testing::DirectoryStore store(std::getenv("COHORT_TEST_STORE"));
  char byte = 0;
  if (group->rank() == 0) {
    const int64_t sending = group->start_send({data.data(), std::ssize(data), 1, 5});
    group->send(&byte, 1, 1, 6);
    expect_error(0, [&] { group->wait(sending); });
    expect_error(0, [&] { group->barrier(); });
    store.set("over", "");
  } else if (group->rank() == 1) {
    group->start_receive({data.data(), std::ssize(data), 0, 5});
    group->receive(&byte, 1, 0, 6);  // it has asked for the other one by then
    store.set("asked", "");
    store.get("over", std::chrono::minutes(1));
  } else {
    store.get("asked", std::chrono::minutes(1));
    group->abort(Error(Code::kAborted, "enough"));
  }
}

// How many bytes a message is said to have, and how many come with that.
struct Announcement {
  int64_t bytes;
  size_t attached;
};
constexpr Announcement kWrongAnnouncements[] = {{1, 3072}, {100, 0}, {-1, 3072}, {100'000, 3072}};

void announce_wrongly(mpi::Group& group) {
  const auto lock = group.transport().lock();
  for (const auto [bytes, attached] : kWrongAnnouncements)
    group.send(0, {.kind = mpi::Control::Kind::kMessage,
                   .words = {0, 5, static_cast<uint64_t>(bytes)},
                   .payload = std::vector<char>(attached, 'x')});
}

void receive_one_byte(mpi::Group& group) {
  char byte = 0;
  int64_t id = 0;
  {
    const auto lock = group.transport().lock();
    id = group.messages().post(ReceiveCall{&byte, 1});
  }
  group.transport().poll_until(mpi::Clock::now() + std::chrono::minutes(1), [&] {
    return group.messages().state(id) == mpi::Messages::State::kEnded;
  });
  const auto lock = group.transport().lock();
  group.messages().take(id);
}

// What rank 1 attaches to its messages, and to its call, has not the size that it should have.
void wrong_sizes() {
  const auto transport = mpi::process_transport(std::chrono::seconds(60));
  const int rank = transport->rank();
  mpi::Group group(transport, 1, {0, 1}, {"worker:0", "worker:1"}, rank);
  int32_t value = 0;
  const Call call = BroadcastCall{&value, &value, sizeof value, 1};
  const StallWarning stall;
  mpi::Traffic traffic(group, call, 0, std::chrono::minutes(1), stall);
  std::vector<mpi::Control> statements(2);
  statements[0].payload.resize(3072);
  const std::vector<mpi::Control> heard = traffic.join(std::move(statements));
  if (rank == 1) {
    announce_wrongly(group);
    transport->poll_until(mpi::Clock::now() + std::chrono::minutes(1),
                          [&] { return group.has_ended(); });
    return;
  }
  expect_error(rank, [&] { mpi::carry_out(call, traffic, heard); });
  for (size_t i = 0; i < std::size(kWrongAnnouncements); ++i)
    expect_error(rank, [&] { receive_one_byte(group); });
  group.end(Error(Code::kAborted, "that is all"));
  group.flush_end();
}

// After a group has ended, a new one takes its place.
void again() {
  for (int round = 0; round < 3; ++round) {
    const auto group = make_mpi_communicator();
    std::vector<float> data(50'000, 1);
    all_reduce(*group, data);
    say(group->rank(), str("sum ", data.back()));
    if (group->rank() == round) group->abort(Error(Code::kAborted, str("end of round ", round)));
    try {
      while (true) group->barrier();
    } catch (const Error& error) {
      say(group->rank(), error.what());
    }
  }
}

// Rank 1 dies while the others wait for it.
void killed() {
  const auto group = make_mpi_communicator();
  group->barrier();
  if (group->rank() == 1) raise(SIGKILL);
  group->barrier();
}

// Rank 1 fails while the others do something that takes long, without a word to their group.
void failed() {
  const auto group = make_mpi_communicator();
  group->barrier();
  if (group->rank() == 1) fail(Code::kDataLoss, "rank 1 cannot go on");
  sleep_for_ever();
}

// Rank 1 does not see the processes that its launcher has started, and fails while the others wait
// for it.
void refused() {
  if (launched_rank() == 1) setenv("OMPI_COMM_WORLD_SIZE", "7", 1);
  make_mpi_communicator()->barrier();
}

// Rank 1 fails, and its exception reaches nobody.
void uncaught() {
  const auto group = make_mpi_communicator();
  group->barrier();
  if (group->rank() == 1) std::thread([] { fail(Code::kDataLoss, "nobody catches this"); }).join();
  sleep_for_ever();
}

// Ranks leave when they are ready, one after the other.
void leave() {
  auto group = make_mpi_communicator();
  std::vector<float> data(300'000, 1);
  all_reduce(*group, data);
  const int rank = group->rank();
  group = nullptr;
  std::this_thread::sleep_for(milliseconds(200 * rank));
  say(rank, str("sum ", data.front()));
}

// The program uses MPI itself.
void own_mpi(int level, bool finalize) {
  const auto& mpi = mpi::library();
  int provided = 0;
  mpi.init_thread(nullptr, nullptr, level, &provided);
  auto group = make_mpi_communicator();
  std::vector<float> data(10, 1);
  all_reduce(*group, data);
  say(group->rank(), str("sum ", data.front()));
  const int rank = group->rank();
  if (!finalize) group = nullptr;
  mpi.finalize();
  if (finalize) expect_error(rank, [&] { group->barrier(); });
  expect_error(rank, [] { make_mpi_communicator(); });
}

// The application aborts its group again when MPI has ended.
void aborted_late() {
  const auto& mpi = mpi::library();
  int provided = 0;
  mpi.init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  const auto group = make_mpi_communicator();
  const auto abort = [&] { group->abort(Error(Code::kAborted, "enough")); };
  abort();
  mpi.finalize();
  expect_error(group->rank(), abort);
}

void single_threaded() {
  const auto& mpi = mpi::library();
  int provided = 0;
  mpi.init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &provided);
  int rank = -1;
  mpi.comm_rank(mpi.world, &rank);
  expect_error(rank, [] { make_mpi_communicator(); });
  mpi.finalize();
}

// What it finds where it was started.
void world() {
  const bool started = started_by_mpi();
  const auto group = make_mpi_communicator();
  std::vector<float> data(70'000, 1);
  all_reduce(*group, data);
  say(group->rank(), str(started ? "started by MPI" : "not started by MPI", ", one of ",
                         group->size(), ", sum ", data.back()));
}

// A group of the job's processes: COHORT_TEST_HOSTS has a letter for the host of each, and
// COHORT_TEST_STORE is a folder that they share.
void group() {
  const std::string hosts = std::getenv("COHORT_TEST_HOSTS");
  const int rank = launched_rank();
  testing::DirectoryStore store(std::getenv("COHORT_TEST_STORE"));
  expect_no_error(rank, [&] {
    const auto connected = make_communicators({.store = &store,
                                               .name = "group",
                                               .process = rank,
                                               .processes = static_cast<int>(hosts.size()),
                                               .host = hosts.substr(static_cast<size_t>(rank), 1)});
    std::vector<float> data(70'000, 1);
    all_reduce(*connected.communicators[0], data);
    say(rank, str("sum ", data.back(), " over ", connected.connection));
  });
}

void wrong_options() {
  for (const double seconds : {0.0, -1.0, std::nan("")})
    expect_error(0, [&] { make_mpi_communicator({.time_limit_seconds = seconds}); });
}

const std::map<std::string, std::function<void()>> kActs = {
    {"order", order},
    {"huge", huge},
    {"second_attempt", second_attempt},
    {"late", late},
    {"no_message", no_message},
    {"stalled", stalled},
    {"stopped", stopped},
    {"lost", lost},
    {"told", [] { told(Code::kDeadlineExceeded); }},
    {"told_of_a_loss", [] { told(Code::kUnavailable); }},
    {"ended_while_moving", ended_while_moving},
    {"wrong_sizes", wrong_sizes},
    {"again", again},
    {"killed", killed},
    {"failed", failed},
    {"refused", refused},
    {"uncaught", uncaught},
    {"leave", leave},
    {"own_mpi", [] { own_mpi(MPI_THREAD_MULTIPLE, false); }},
    {"own_mpi_serialized", [] { own_mpi(MPI_THREAD_SERIALIZED, false); }},
    {"finalized_early", [] { own_mpi(MPI_THREAD_MULTIPLE, true); }},
    {"aborted_late", aborted_late},
    {"single_threaded", single_threaded},
    {"world", world},
    {"wrong_options", wrong_options},
    {"group", group},
};

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  const auto act = cohort::kActs.find(argc == 2 ? argv[1] : "");
  if (act == cohort::kActs.end()) {
    std::cerr << "an act is needed\n";
    return 2;
  }
  try {
    act->second();
    return 0;
  } catch (const cohort::Error& error) {
    std::cerr << error.what() << "\n";
    return cohort::exit_code(error.code());
  }
}
